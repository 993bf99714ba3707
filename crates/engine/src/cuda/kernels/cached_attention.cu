// Attention of the next tokens to the KV cache. The cache holds floats, whatever the type of activations, unless the
// file is compiled with -DKEPT_BF16.

#ifdef KEPT_BF16
typedef bf16 KEPT;
#else
typedef float KEPT;
#endif

// Rows of k and v become rows first, first + 1, ... of the cache.
extern "C" __global__ void keep_rows(const ACT* k, const ACT* v, KEPT* keys, KEPT* values, const int* first, u32 rows, u32 kept,
                                     u32 narrow, u64 k_pitch, u64 v_pitch) {
    in_turn();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * narrow; i += gridDim.x * blockDim.x) {
        u32 row = i / narrow, col = i % narrow, to = *first + row;
        if (to >= kept) continue;
        keys[(u64)to * narrow + col] = from_float<KEPT>(to_float(k[row * k_pitch + col]));
        values[(u64)to * narrow + col] = from_float<KEPT>(to_float(v[row * v_pitch + col]));
    }
}

// A block of 256 threads per head of a row; each of the eight warps takes every eighth visible row, and the eight parts
// are merged. Head size at most 256.
extern "C" __global__ void cached_attention(const ACT* q, const KEPT* keys, const KEPT* values, const int* first, ACT* out,
                                            u32 heads, u32 kv_heads, u32 width, u32 kept, u64 q_pitch, float scale) {
    in_turn();
    constexpr int EACH = 8;
    __shared__ float tops[8], sums[8], parts[8][256];
    u32 head = blockIdx.x, row = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 narrow = kv_heads * width, own = head * kv_heads / heads * width;
    u32 seen = min(*first + row + 1, kept);
    float query[EACH], mixed[EACH], top = -3.4e38f, sum = 0.0f;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        u32 col = e * 32 + lane;
        query[e] = col < width ? to_float(q[row * q_pitch + head * width + col]) : 0.0f;
        mixed[e] = 0.0f;
    }
    for (u32 at = warp; at < seen; at += 8) {
        const KEPT *key = keys + (u64)at * narrow + own, *value = values + (u64)at * narrow + own;
        float dot = 0.0f;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (e * 32 + lane < width) dot += query[e] * to_float(key[e * 32 + lane]);
        float score = scale * warp_sum(dot);
        if (score > top || score != score) {
            float shrunk = expf(top - score);
            sum *= shrunk;
#pragma unroll
            for (int e = 0; e < EACH; e++) mixed[e] *= shrunk;
            top = score;
        }
        float share = expf(score - top);
        sum += share;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (e * 32 + lane < width) mixed[e] += share * to_float(value[e * 32 + lane]);
    }
    if (lane == 0) {
        tops[warp] = top;
        sums[warp] = sum;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) parts[warp][e * 32 + lane] = mixed[e];
    __syncthreads();
    if (threadIdx.x >= width) return;
    float most = tops[0], total = 0.0f, made = 0.0f;
    for (int w = 1; w < 8; w++)
        if (tops[w] > most || tops[w] != tops[w]) most = tops[w];
    for (int w = 0; w < 8; w++) {
        float factor = expf(tops[w] - most);
        total += factor * sums[w];
        made += factor * parts[w][threadIdx.x];
    }
    out[(u64)row * heads * width + head * width + threadIdx.x] = from_float<ACT>(made / total);
}
