// Tiled causal attention on the tensor cores of any device from Ampere on: forward.

struct Forward {
    const bf16 *q, *k, *v;
    bf16* out;
    float* lse;
    const float *cosines, *sines;
    int batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo;
    float scale;
};

// A block of four warps owns 64*MT queries; a warp owns 16*MT adjacent ones. Values of a tile arrive while its scores
// are computed, keys of the next one while its weights are applied.
template <int MT>
__device__ __forceinline__ void forward(const Forward& p) {
    constexpr int THREADS = 128, QUERIES = 64 * MT, KEY_PARTS = TILE_ROWS / 8;
    constexpr bool HELD = HEAD_DIM <= 64;  // queries stay in registers
    u32 tiles = shared_tiles(), keys = tiles + MT * TILE_BYTES, values = keys + TILE_BYTES;
    int lane = lane_of_thread(), own = warp_of_thread() * 16 * MT;
    int row_blocks = (p.seq + QUERIES - 1) / QUERIES;
    Turn turn = turn_of(blockIdx.x, p.batch * p.heads, row_blocks, p.seq);
    int pair = turn.pair, b = pair / p.heads, h = pair % p.heads, kv = h * p.kv_heads / p.heads;
    int block0 = (row_blocks - 1 - turn.number) * QUERIES;  // the longest rows first
    int row0 = block0 + own;
    const bf16* q = p.q + (size_t)b * p.seq * p.ldq + h * HEAD_DIM;
    const bf16* k = p.k + (size_t)b * p.seq * p.ldk + kv * HEAD_DIM;
    const bf16* v = p.v + (size_t)b * p.seq * p.ldv + kv * HEAD_DIM;
    int steps = (min(block0 + QUERIES, p.seq) + TILE_ROWS - 1) / TILE_ROWS;
    u32 q_tile = tiles + own / 64 * TILE_BYTES;
    int q_row = own % 64;
    float scale = p.scale * LOG2_E;

#pragma unroll
    for (int g = 0; g < MT; g++) load_tile<THREADS>(tiles + g * TILE_BYTES, q, p.ldq, block0 + g * TILE_ROWS, p.seq);
    load_tile<THREADS>(keys, k, p.ldk, 0, p.seq);
    wait_copies();
    if (p.cosines) {
#pragma unroll
        for (int g = 0; g < MT; g++) rotate_tile<THREADS>(tiles + g * TILE_BYTES, p.cosines, p.sines, block0 + g * TILE_ROWS, p.seq);
        rotate_tile<THREADS>(keys, p.cosines, p.sines, 0, p.seq);
    }
    __syncthreads();

    u32 queries[MT][HELD ? HEAD_DIM / 16 : 1][4];
    if constexpr (HELD) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int d = 0; d < HEAD_DIM / 16; d++) read_left(queries[m][d], q_tile, q_row + 16 * m, d);
    }
    float sums[MT][PARTS][4], highest[MT][2], total[MT][2];
    clear(sums);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) highest[m][r] = NEGATIVE_INFINITY, total[m][r] = 0;

    for (int step = 0; step < steps; step++) {
        int key0 = step * TILE_ROWS;
        bool seen = key0 < row0 + 16 * MT;  // by any of this warp's rows
        load_tile<THREADS>(values, v, p.ldv, key0, p.seq);
        float scores[MT][KEY_PARTS][4];
        if (seen) {
            if constexpr (HELD) {
                clear(scores);
#pragma unroll
                for (int d = 0; d < HEAD_DIM / 16; d++)
#pragma unroll
                    for (int n = 0; n < KEY_PARTS; n += 2) {
                        u32 right[4];
                        read_right(right, keys, 8 * n, d);
#pragma unroll
                        for (int m = 0; m < MT; m++) {
                            multiply_add(scores[m][n], queries[m][d], right[0], right[1]);
                            multiply_add(scores[m][n + 1], queries[m][d], right[2], right[3]);
                        }
                    }
            } else {
                multiply_rows(scores, q_tile, q_row, keys, 0);
            }
        }
        wait_copies();
        __syncthreads();  // values have arrived, and nobody reads these keys any more
        if (step + 1 < steps) load_tile<THREADS>(keys, k, p.ldk, key0 + TILE_ROWS, p.seq);
        if (seen) {
            if (key0 + TILE_ROWS > row0) {
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                    for (int n = 0; n < KEY_PARTS; n++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            if (key0 + 8 * n + lane % 4 * 2 + i % 2 > row0 + 16 * m + lane / 4 + i / 2 * 8) scores[m][n][i] = NEGATIVE_INFINITY;
            }
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float top = highest[m][r];
#pragma unroll
                    for (int n = 0; n < KEY_PARTS; n++) top = fmaxf(top, fmaxf(scores[m][n][2 * r], scores[m][n][2 * r + 1]));
                    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
                    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
                    float shrink = exp2_fast((highest[m][r] - top) * scale), below = top * scale, sum = 0;
                    highest[m][r] = top;
#pragma unroll
                    for (int n = 0; n < KEY_PARTS; n++)
#pragma unroll
                        for (int i = 2 * r; i < 2 * r + 2; i++) sum += scores[m][n][i] = exp2_fast(scores[m][n][i] * scale - below);
                    total[m][r] = total[m][r] * shrink + sum;
#pragma unroll
                    for (int n = 0; n < PARTS; n++) sums[m][n][2 * r] *= shrink, sums[m][n][2 * r + 1] *= shrink;
                }
            u32 weights[MT][KEY_PARTS / 2][4];
            pack_weights(weights, scores);
            add_weighted(sums, weights, values, 0);
        }
        wait_copies();
        if (p.cosines && step + 1 < steps) rotate_tile<THREADS>(keys, p.cosines, p.sines, key0 + TILE_ROWS, p.seq);
        __syncthreads();  // the next keys have arrived, and nobody reads these values any more
    }

    // Writes through this warp's own rows of the query tile, so that stores are 16 bytes wide.
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = total[m][r];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            int row = 16 * m + lane / 4 + 8 * r;
            if (lane % 4 == 0 && row0 + row < p.seq) p.lse[(size_t)pair * p.seq + row0 + row] = highest[m][r] * p.scale + logf(sum);
            float factor = 1 / sum;
#pragma unroll
            for (int n = 0; n < PARTS; n++)
                write_shared4(q_tile + chunk_offset(q_row + row, n) + lane % 4 * 4, pack(sums[m][n][2 * r] * factor, sums[m][n][2 * r + 1] * factor));
        }
    __syncwarp();
    bf16* out = p.out + (size_t)b * p.seq * p.ldo + h * HEAD_DIM;
#pragma unroll
    for (int pass = 0; pass < MT * HEAD_DIM / 16; pass++) {
        int i = pass * 32 + lane, row = i / (HEAD_DIM / 8), chunk = i % (HEAD_DIM / 8);
        if (row0 + row < p.seq) *(uint4*)(out + (size_t)(row0 + row) * p.ldo + chunk * 8) = read_shared16(q_tile + chunk_offset(q_row + row, chunk));
    }
}

#define FORWARD_PARAMETERS                                                                                             \
    const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out, float *lse, const float *cosines, const float *sines, int batch, \
        int heads, int kv_heads, int seq, int ldq, int ldk, int ldv, int ldo, float scale
#define FORWARD_ARGUMENTS \
    Forward { q, k, v, out, lse, cosines, sines, batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, scale }

extern "C" __global__ void __launch_bounds__(128, 2) flash_forward_mma_bf16(FORWARD_PARAMETERS) { in_turn(); forward<2>(FORWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, HEAD_DIM > 64 ? 3 : 4) flash_forward_small_mma_bf16(FORWARD_PARAMETERS) {
    in_turn();
    forward<1>(FORWARD_ARGUMENTS);
}
