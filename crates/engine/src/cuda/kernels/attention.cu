// The products of materialised attention (Version 1): scores = q kT, mix = p v, and pT x summed over the heads of a
// group.
//
// One block computes a 64 x 64 tile in float, in steps of 16 along the inner axis; 256 threads with 4 x 4 elements
// each.

#define TILE 64
#define DEPTH 16

// A(i, k) and B(k, j) are read through `left` and `right`, which return 0 out of bounds.
template <typename Left, typename Right>
__device__ __forceinline__ void add_product(float (&sums)[4][4], u32 inner, Left left, Right right) {
    __shared__ float a[DEPTH][TILE + 4], b[DEPTH][TILE + 4];
    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (u32 start = 0; start < inner; start += DEPTH) {
        __syncthreads();
        for (u32 e = threadIdx.x; e < TILE * DEPTH; e += 256) {
            a[e % DEPTH][e / DEPTH] = left(e / DEPTH, start + e % DEPTH);
            b[e % DEPTH][e / DEPTH] = right(start + e % DEPTH, e / DEPTH);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] += a[k][ty * 4 + i] * b[k][tx * 4 + j];
    }
}

#define EACH_SUM                                                                                  \
    for (int i = 0; i < 4; i++)                                                                   \
        for (int j = 0; j < 4; j++)                                                               \
            for (u32 row = row0 + threadIdx.x / 16 * 4 + i, col = col0 + threadIdx.x % 16 * 4 + j, once = 1; once; once = 0)

// grid: column tiles of seq, row tiles of seq, batch * heads
extern "C" __global__ void attention_scores(const ACT* q, const ACT* k, ACT* out, u32 heads, u32 kv_heads, u32 seq, u32 dim,
                                            float scale) {
    in_turn();
    u32 row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE, batch = blockIdx.z / heads, head = blockIdx.z % heads;
    u32 kv = head * kv_heads / heads;
    u64 ldq = heads * dim, ldk = kv_heads * dim;
    const ACT *qs = q + (u64)batch * seq * ldq + head * dim, *ks = k + (u64)batch * seq * ldk + kv * dim;
    float sums[4][4] = {};
    add_product(
        sums, dim, [&](u32 i, u32 d) { return row0 + i < seq && d < dim ? to_float(qs[(row0 + i) * ldq + d]) : 0.0f; },
        [&](u32 d, u32 j) { return col0 + j < seq && d < dim ? to_float(ks[(col0 + j) * ldk + d]) : 0.0f; });
    EACH_SUM if (row < seq && col < seq) out[((u64)blockIdx.z * seq + row) * seq + col] = from_float<ACT>(scale * sums[i][j]);
}

// grid: column tiles of dim, row tiles of seq, batch * heads
extern "C" __global__ void attention_mix(const ACT* p, const ACT* v, ACT* out, u32 heads, u32 kv_heads, u32 seq, u32 dim,
                                         float scale) {
    in_turn();
    u32 row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE, batch = blockIdx.z / heads, head = blockIdx.z % heads;
    u32 kv = head * kv_heads / heads;
    u64 ldv = kv_heads * dim, ldo = heads * dim;
    const ACT *ps = p + (u64)blockIdx.z * seq * seq, *vs = v + (u64)batch * seq * ldv + kv * dim;
    float sums[4][4] = {};
    add_product(
        sums, seq, [&](u32 i, u32 s) { return row0 + i < seq && s < seq ? to_float(ps[(u64)(row0 + i) * seq + s]) : 0.0f; },
        [&](u32 s, u32 j) { return s < seq && col0 + j < dim ? to_float(vs[s * ldv + col0 + j]) : 0.0f; });
    EACH_SUM if (row < seq && col < dim)
        out[((u64)batch * seq + row) * ldo + head * dim + col] = from_float<ACT>(scale * sums[i][j]);
}

// grid: column tiles of dim, row tiles of seq, batch * kv_heads
extern "C" __global__ void attention_mix_back(const ACT* p, const ACT* x, ACT* out, u32 heads, u32 kv_heads, u32 seq, u32 dim,
                                              float scale) {
    in_turn();
    u32 row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE, batch = blockIdx.z / kv_heads, kv = blockIdx.z % kv_heads;
    u32 group = heads / kv_heads;
    u64 ldx = heads * dim, ldo = kv_heads * dim;
    float sums[4][4] = {};
    for (u32 head = kv * group; head < (kv + 1) * group; head++) {
        const ACT *ps = p + ((u64)batch * heads + head) * seq * seq, *xs = x + (u64)batch * seq * ldx + head * dim;
        add_product(
            sums, seq, [&](u32 i, u32 s) { return row0 + i < seq && s < seq ? to_float(ps[(u64)s * seq + row0 + i]) : 0.0f; },
            [&](u32 s, u32 j) { return s < seq && col0 + j < dim ? to_float(xs[s * ldx + col0 + j]) : 0.0f; });
    }
    EACH_SUM if (row < seq && col < dim)
        out[((u64)batch * seq + row) * ldo + kv * dim + col] = from_float<ACT>(scale * sums[i][j]);
}
