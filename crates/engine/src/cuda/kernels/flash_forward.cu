// Tiled causal attention on Hopper's tensor cores: forward.


struct Forward {
    const bf16 *q, *k, *v;
    bf16* out;
    float* lse;
    const float *cosines, *sines;
    int batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo;
    float scale;
};

// Turns one tile of scores into weights and updates the online softmax; `shrink` is the factor that rescales the
// earlier sums. On the diagonal tile, keys after the query are masked.
__device__ __forceinline__ void take_weights(float (&scores)[SCORES], bool diagonal, float scale, float (&highest)[2], float (&total)[2],
                                             float (&shrink)[2]) {
    if (diagonal) {
#pragma unroll
        for (int i = 0; i < SCORES; i++)
            if (column_of(i) > row_of_thread() + (i / 2 % 2) * 8) scores[i] = NEGATIVE_INFINITY;
    }
    float top[2] = {highest[0], highest[1]};
#pragma unroll
    for (int i = 0; i < SCORES; i++) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[i]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
        top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
        shrink[r] = exp2_fast((highest[r] - top[r]) * scale);
        highest[r] = top[r];
        total[r] *= shrink[r];
        top[r] *= scale;
    }
#pragma unroll
    for (int i = 0; i < SCORES; i++) total[i / 2 % 2] += scores[i] = exp2_fast(scores[i] * scale - top[i / 2 % 2]);
}

// Keys run one tile ahead of values: while the tensor cores add this tile's weighted values, the next tile's scores are
// finished and its softmax is computed.
template <int GROUPS>
__device__ __forceinline__ void forward(const Forward& p) {
    constexpr int THREADS = 128 * GROUPS, QUERIES = TILE_ROWS * GROUPS;
    u32 tiles = shared_tiles();
    int group = group_of_thread();
    int pairs = p.batch * p.heads, pair = blockIdx.x % pairs;
    int b = pair / p.heads, h = pair % p.heads, kv = h * p.kv_heads / p.heads;
    int block0 = ((p.seq + QUERIES - 1) / QUERIES - 1 - (int)blockIdx.x / pairs) * QUERIES;  // the longest rows first
    const bf16* q = p.q + (size_t)b * p.seq * p.ldq + h * HEAD_DIM;
    const bf16* k = p.k + (size_t)b * p.seq * p.ldk + kv * HEAD_DIM;
    const bf16* v = p.v + (size_t)b * p.seq * p.ldv + kv * HEAD_DIM;
    int row0 = block0 + group * TILE_ROWS;
    int steps = (min(block0 + QUERIES, p.seq) + TILE_ROWS - 1) / TILE_ROWS, own_steps = min(row0 / TILE_ROWS + 1, steps);
    u32 q_tile = tiles + group * TILE_BYTES, keys = tiles + GROUPS * TILE_BYTES, values = keys + 2 * TILE_BYTES;
    float scale = p.scale * LOG2_E;

#pragma unroll
    for (int g = 0; g < GROUPS; g++) load_tile<THREADS>(tiles + g * TILE_BYTES, q, p.ldq, block0 + g * TILE_ROWS, p.seq);
    load_tile<THREADS>(keys, k, p.ldk, 0, p.seq);
    wait_copies();
    if (p.cosines) {
#pragma unroll
        for (int g = 0; g < GROUPS; g++) rotate_tile<THREADS>(tiles + g * TILE_BYTES, p.cosines, p.sines, block0 + g * TILE_ROWS, p.seq);
        rotate_tile<THREADS>(keys, p.cosines, p.sines, 0, p.seq);
    }
    publish_to_tensor_cores();
    __syncthreads();
    load_tile<THREADS>(values, v, p.ldv, 0, p.seq);
    if (steps > 1) load_tile<THREADS>(keys + TILE_BYTES, k, p.ldk, TILE_ROWS, p.seq);

    float sums[OUTPUTS], scores[SCORES], highest[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY}, total[2] = {0, 0}, shrink[2];
#ifdef Q_IN_REGISTERS
    u32 queries[HEAD_DIM / 4];
    read_fragments(queries, q_tile);
    settle(queries);
#else
    u32 queries = q_tile;
#endif
    begin_products();
    multiply_tiles(scores, queries, keys);
    commit_products();
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) sums[i] = 0;
    wait_products<0>(scores);
    take_weights(scores, row0 == 0, scale, highest, total, shrink);

    for (int step = 0; step < steps; step++) {
        u32 v_tile = values + (step & 1) * TILE_BYTES, next_k_tile = keys + ((step + 1) & 1) * TILE_BYTES;
        wait_copies();
        if (p.cosines && step + 1 < steps) rotate_tile<THREADS>(next_k_tile, p.cosines, p.sines, (step + 1) * TILE_ROWS, p.seq);
        publish_to_tensor_cores();
        __syncthreads();
        if (step + 2 < steps) load_tile<THREADS>(keys + (step & 1) * TILE_BYTES, k, p.ldk, (step + 2) * TILE_ROWS, p.seq);
        if (step + 1 < steps) load_tile<THREADS>(values + ((step + 1) & 1) * TILE_BYTES, v, p.ldv, (step + 1) * TILE_ROWS, p.seq);
        if (step >= own_steps) continue;  // this group's rows see none of these keys
        u32 weights[SCORES / 2];
        // Packing waits until no product reads the registers that it writes.
#pragma unroll
        for (int i = 0; i < SCORES; i += 2) weights[i / 2] = pack(scores[i], scores[i + 1]);
        if (step + 1 < own_steps) {
            begin_products();
            multiply_tiles(scores, queries, next_k_tile);
            commit_products();
            add_weighted_rows(sums, weights, v_tile);
            commit_products();
            wait_products<1>(scores);
            take_weights(scores, (step + 1) * TILE_ROWS == row0, scale, highest, total, shrink);
            settle(scores);  // forces the softmax to finish here instead of after the products
            wait_products<0>(sums);
            settle(scores);
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++) sums[i] *= shrink[i / 2 % 2];
        } else {
            begin_products();
            add_weighted_rows(sums, weights, v_tile);
            commit_products();
            wait_products<0>(sums);
        }
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        total[r] += __shfl_xor_sync(~0u, total[r], 1);
        total[r] += __shfl_xor_sync(~0u, total[r], 2);
        int row = row0 + row_of_thread() + r * 8;
        if (threadIdx.x % 4 == 0 && row < p.seq) p.lse[(size_t)pair * p.seq + row] = highest[r] * p.scale + logf(total[r]);
    }
    group_barrier(group);
    store_tile(sums, 1 / total[0], 1 / total[1], q_tile, p.out + (size_t)b * p.seq * p.ldo + h * HEAD_DIM, p.ldo, row0, p.seq);
}

#define FORWARD_PARAMETERS                                                                                             \
    const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out, float *lse, const float *cosines, const float *sines, int batch, \
        int heads, int kv_heads, int seq, int ldq, int ldk, int ldv, int ldo, float scale
#define FORWARD_ARGUMENTS \
    Forward { q, k, v, out, lse, cosines, sines, batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, scale }

#ifndef FORWARD_GROUPS
#define FORWARD_GROUPS 2
#define FORWARD_BLOCKS (HEAD_DIM > 64 ? 1 : 2)
#endif
extern "C" __global__ void __launch_bounds__(128 * FORWARD_GROUPS, FORWARD_BLOCKS) flash_forward_bf16(FORWARD_PARAMETERS) { in_turn(); forward<FORWARD_GROUPS>(FORWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, HEAD_DIM > 64 ? 2 : 4) flash_forward_small_bf16(FORWARD_PARAMETERS) {
    in_turn();
    forward<1>(FORWARD_ARGUMENTS);
}
