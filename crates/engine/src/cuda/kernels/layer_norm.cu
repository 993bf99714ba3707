// LayerNorm and its gradient.
//
// blockDim.x threads share a row and keep it in registers, P packs of W elements each: every byte is read and written
// once. A block handles blockDim.y rows side by side.

template <int W, int P>
__device__ void layer_norm_rows(const ACT* x, const float* weight, const float* bias, ACT* out, u32 rows, u32 cols, float eps) {
    __shared__ float room[32 * 8];
    u32 row = blockIdx.x * blockDim.y + threadIdx.y;
    bool inside = row < rows;
    float held[P][W];
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 col = (p * blockDim.x + threadIdx.x) * W;
        if (!inside || col >= cols) continue;
        auto pack = load<W>(x + (u64)row * cols + col);
#pragma unroll
        for (int k = 0; k < W; k++) sum += held[p][k] = to_float(pack.x[k]);
    }
    float mean = row_sum(sum, room) / cols, squares = 0.0f;
#pragma unroll
    for (int p = 0; p < P; p++) {
        if (!inside || (p * blockDim.x + threadIdx.x) * W >= cols) continue;
#pragma unroll
        for (int k = 0; k < W; k++) squares += (held[p][k] - mean) * (held[p][k] - mean);
    }
    float scale = 1.0f / sqrtf(row_sum(squares, room) / cols + eps);
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 col = (p * blockDim.x + threadIdx.x) * W;
        if (!inside || col >= cols) continue;
        float gain[W], shift[W];
        load_floats<W>(weight + col, gain);
        load_floats<W>(bias + col, shift);
        Pack<ACT, W> made;
#pragma unroll
        for (int k = 0; k < W; k++) made.x[k] = from_float<ACT>(gain[k] * ((held[p][k] - mean) * scale) + shift[k]);
        store<W>(out + (u64)row * cols + col, made);
    }
}

// Sums of two values over a row's threads. `room` holds 32 pairs for each row of the block.
__device__ __forceinline__ float2 pair_sum(float a, float b, float2* room) {
    a = warp_sum(a);
    b = warp_sum(b);
    u32 warps = blockDim.x / 32, lane = threadIdx.x % 32;
    if (warps == 1) return make_float2(a, b);
    float2* mine = room + threadIdx.y * 32;
    __syncthreads();
    if (lane == 0) mine[threadIdx.x / 32] = make_float2(a, b);
    __syncthreads();
    float2 part = lane < warps ? mine[lane] : make_float2(0.0f, 0.0f);
    return make_float2(warp_sum(part.x), warp_sum(part.y));
}

// With n = (x - mean) * scale and g = w dy: dx = scale (g - mean(g) - n mean(g n)). A block loops over rows and keeps
// its parts of dweight and dbias in registers; the parts of its rows are added up, one line per block in each of the
// two lists.
template <int W, int P>
__device__ void layer_norm_grad_rows(const ACT* x, const float* weight, const ACT* dy, ACT* dx, float* dweights, float* dbiases,
                                     u32 rows, u32 cols, float eps) {
    extern __shared__ float shared[];
    float2* room = (float2*)shared;
    float *weight_lines = shared + 2 * 256, *bias_lines = weight_lines + blockDim.y * cols;
    float dweight[P][W], dbias[P][W], gain[P][W];
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 col = (p * blockDim.x + threadIdx.x) * W;
#pragma unroll
        for (int k = 0; k < W; k++) dweight[p][k] = dbias[p][k] = gain[p][k] = 0.0f;
        if (col < cols) load_floats<W>(weight + col, gain[p]);
    }
    // All rows of a block take part in every iteration, because the sums below contain barriers.
    for (u32 first = blockIdx.x * blockDim.y; first < rows; first += gridDim.x * blockDim.y) {
        u32 row = first + threadIdx.y;
        float held[P][W], arrived[P][W], sum = 0.0f, along = 0.0f;
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 col = (p * blockDim.x + threadIdx.x) * W;
            if (row >= rows || col >= cols) continue;
            auto xs = load<W>(x + (u64)row * cols + col);
            auto ds = load<W>(dy + (u64)row * cols + col);
#pragma unroll
            for (int k = 0; k < W; k++) {
                sum += held[p][k] = to_float(xs.x[k]);
                arrived[p][k] = to_float(ds.x[k]);
                along += gain[p][k] * arrived[p][k];
            }
        }
        float2 sums = pair_sum(sum, along, room);
        float mean = sums.x / cols, squares = 0.0f, across = 0.0f;
        along = sums.y / cols;
#pragma unroll
        for (int p = 0; p < P; p++) {
            if (row >= rows || (p * blockDim.x + threadIdx.x) * W >= cols) continue;
#pragma unroll
            for (int k = 0; k < W; k++) {
                float apart = held[p][k] - mean;
                squares += apart * apart;
                across += gain[p][k] * arrived[p][k] * apart;
            }
        }
        sums = pair_sum(squares, across, room);
        float scale = rsqrtf(sums.x / cols + eps);
        across = sums.y * scale / cols;
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 col = (p * blockDim.x + threadIdx.x) * W;
            if (row >= rows || col >= cols) continue;
            Pack<ACT, W> made;
#pragma unroll
            for (int k = 0; k < W; k++) {
                float normed = (held[p][k] - mean) * scale;
                made.x[k] = from_float<ACT>(scale * (gain[p][k] * arrived[p][k] - along - normed * across));
                dweight[p][k] += arrived[p][k] * normed;
                dbias[p][k] += arrived[p][k];
            }
            store<W>(dx + (u64)row * cols + col, made);
        }
    }
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 col = (p * blockDim.x + threadIdx.x) * W;
        if (col >= cols) continue;
#pragma unroll
        for (int k = 0; k < W; k++) {
            weight_lines[threadIdx.y * cols + col + k] = dweight[p][k];
            bias_lines[threadIdx.y * cols + col + k] = dbias[p][k];
        }
    }
    __syncthreads();
    for (u32 col = threadIdx.y * blockDim.x + threadIdx.x; col < cols; col += blockDim.x * blockDim.y) {
        float weights = 0.0f, biases = 0.0f;
        for (u32 line = 0; line < blockDim.y; line++) {
            weights += weight_lines[line * cols + col];
            biases += bias_lines[line * cols + col];
        }
        dweights[(u64)blockIdx.x * cols + col] = weights;
        dbiases[(u64)blockIdx.x * cols + col] = biases;
    }
}

#define LAYER_NORM(suffix, W, P, THREADS)                                                                                   \
    extern "C" __global__ void layer_norm_##suffix(const ACT* x, const float* w, const float* b, ACT* y, u32 r, u32 c, float e) { \
        in_turn();                                                                                                          \
        layer_norm_rows<W, P>(x, w, b, y, r, c, e);                                                                         \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS) layer_norm_grad_##suffix(                                         \
        const ACT* x, const float* w, const ACT* dy, ACT* dx, float* dw, float* db, u32 r, u32 c, float e) {                \
        in_turn();                                                                                                          \
        layer_norm_grad_rows<W, P>(x, w, dy, dx, dw, db, r, c, e);                                                          \
    }
// One warp per row: its sums need no shared memory.
LAYER_NORM(r1, WIDE, 1, 256)
LAYER_NORM(r2, WIDE, 2, 256)
LAYER_NORM(r3, WIDE, 3, 256)
LAYER_NORM(r4, WIDE, 4, 256)
LAYER_NORM(v1, WIDE, 1, 256)
LAYER_NORM(w1, WIDE, 1, 512)
LAYER_NORM(v2, WIDE, 2, 512)
LAYER_NORM(v4, WIDE, 4, 512)
LAYER_NORM(s4, 1, 4, 512)
