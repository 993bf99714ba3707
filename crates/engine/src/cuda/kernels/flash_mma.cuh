// Causal attention on the tensor cores of any device from Ampere on (mma.sync, ldmatrix, cp.async), bf16 in and out,
// float accumulators. No atomics except for a block's ticket: the same input gives the same bits.
//
// Mirrored by the launching side:
//   TILE_BYTES = 8192 * ceil(HEAD_DIM / 64);   tiles(n) = ceil(seq / (64 * n))
//   flash_forward_mma_bf16         block 128, grid tiles(2)*batch*heads, shared 4*TILE_BYTES + 1024
//   flash_forward_small_mma_bf16   block 128, grid tiles(1)*batch*heads, shared 3*TILE_BYTES + 1024
//   flash_delta_mma_bf16           block 256, grid ceil(batch*seq*heads / 32)
//   flash_backward_mma_bf16        block 32*WARPS, grid tiles(KEY_TILES)*batch*kv_heads,
//                                  shared (2*KEY_TILES + 2*STAGES)*TILE_BYTES + KEY_TILES*8192*(HEAD_DIM > 64 ? 2 : 1)
//                                  + STAGES*512 + 1024
// with KEY_TILES and STAGES as compiled (2 and 2, or 1 and 1 if shared memory is short), and
// WARPS = KEY_TILES * (HEAD_DIM > 64 ? 4 : 2). flash_delta comes first: it also clears `turns`.

// A warp's part of a product is 16 rows times 8 columns, MT or 2 of them stacked: register i of a part belongs to row
// lane / 4 + 8 * (i / 2) and column 2 * (lane % 4) + i % 2.
__device__ __forceinline__ int lane_of_thread() { return threadIdx.x % 32; }
__device__ __forceinline__ int warp_of_thread() { return __shfl_sync(~0u, threadIdx.x / 32, 0); }
constexpr int PARTS = HEAD_DIM / 8;  // of 8 columns

template <int MT, int NT>
__device__ __forceinline__ void clear(float (&sums)[MT][NT][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[m][n][i] = 0;
}

// 16 rows starting at `row` and columns 16*k.. of a tile, as the left operand of a product.
__device__ __forceinline__ void read_left(u32 (&to)[4], u32 tile, int row, int k) {
    int lane = lane_of_thread();
    read_matrices(to, tile + chunk_offset(row + lane % 16, 2 * k + lane / 16));
}

// 16 rows starting at `row`, read along columns 16*k..: the right operands of two adjacent parts.
__device__ __forceinline__ void read_right(u32 (&to)[4], u32 tile, int row, int k) {
    int lane = lane_of_thread();
    read_matrices(to, tile + chunk_offset(row + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
}

// 16 rows starting at `row`, read across: columns 8*first.. and 8*second.. become the right operands of two parts.
__device__ __forceinline__ void read_across(u32 (&to)[4], u32 tile, int row, int first, int second) {
    int lane = lane_of_thread();
    read_matrices_transposed(to, tile + chunk_offset(row + lane % 16, lane < 16 ? first : second));
}

// scores = a * b^T over HEAD_DIM: 16*MT rows of `a` starting at row `down`, 8*NT rows of `b` starting at row `over`.
// `between` is called after each step of depth, for work that the tensor cores need not wait for.
template <int MT, int NT, typename Between>
__device__ __forceinline__ void multiply_rows(float (&scores)[MT][NT][4], u32 a, int down, u32 b, int over, Between between) {
    clear(scores);
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
        u32 left[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) read_left(left[m], a, down + 16 * m, k);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            u32 right[4];
            read_right(right, b, over + 8 * n, k);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply_add(scores[m][n], left[m], right[0], right[1]);
                multiply_add(scores[m][n + 1], left[m], right[2], right[3]);
            }
        }
        between(k);
    }
}
template <int MT, int NT>
__device__ __forceinline__ void multiply_rows(float (&scores)[MT][NT][4], u32 a, int down, u32 b, int over) {
    multiply_rows(scores, a, down, b, over, [](int) {});
}

// Scores become left operands in place: 16 columns per four registers.
template <int MT, int NT>
__device__ __forceinline__ void pack_weights(u32 (&weights)[MT][NT / 2][4], const float (&scores)[MT][NT][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int k = 0; k < NT / 2; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) weights[m][k][i] = pack(scores[m][2 * k + i / 2][i % 2 * 2], scores[m][2 * k + i / 2][i % 2 * 2 + 1]);
}

// sums += weights * rows of a tile, starting at row `over`.
template <int MT, int KT>
__device__ __forceinline__ void add_weighted(float (&sums)[MT][PARTS][4], const u32 (&weights)[MT][KT][4], u32 tile, int over) {
#pragma unroll
    for (int k = 0; k < KT; k++)
#pragma unroll
        for (int n = 0; n < PARTS; n += 2) {
            u32 right[4];
            read_across(right, tile, over + 16 * k, n, n + 1);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply_add(sums[m][n], weights[m][k], right[0], right[1]);
                multiply_add(sums[m][n + 1], weights[m][k], right[2], right[3]);
            }
        }
}

// Rotates gradients of a rotated row back: two adjacent columns and their partners HEAD_DIM/2 further.
__device__ __forceinline__ void turn_back(float& a0, float& a1, float& b0, float& b1, const float* cosines, const float* sines, int row, int column) {
    float2 c = __ldg((const float2*)(cosines + row * (HEAD_DIM / 2) + column)), s = __ldg((const float2*)(sines + row * (HEAD_DIM / 2) + column));
    float x0 = a0 * c.x + b0 * s.x, x1 = a1 * c.y + b1 * s.y;
    b0 = b0 * c.x - a0 * s.x;
    b1 = b1 * c.y - a1 * s.y;
    a0 = x0;
    a1 = x1;
}

// The head (of a batch) and the row block with index `place` in launch order. Blocks of one group of heads are
// adjacent, so that the rows they share stay in L2; within a group, the first blocks of all heads come first.
struct Turn {
    int pair, number;
};
// Bytes of shared rows per group of heads: measured on an H200, whose L2 has 50 MiB.
constexpr long long GROUP_BYTES = 32 << 20;
__device__ __forceinline__ Turn turn_of(int place, int pairs, int blocks, int seq) {
    int most = max(1, (int)min((long long)pairs, GROUP_BYTES / ((long long)seq * HEAD_DIM * 4)));
    int first = place / (most * blocks) * most, width = min(most, pairs - first), within = place - first * blocks;
    return Turn{first + within % width, within / width};
}
