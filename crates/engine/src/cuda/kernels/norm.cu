// RMSNorm, alone and after a residual add, and the gradient of both.
//
// blockDim.x threads share a row and keep it in registers, P packs of W elements each: every byte is read and written
// once. blockDim.y rows are handled side by side.

template <int W, int P>
__device__ void rms_norm_rows(const ACT* x, const ACT* branch, const float* weight, ACT* sum, ACT* out, u32 rows, u32 cols,
                              float eps) {
    __shared__ float room[32 * 8];
    u32 row = blockIdx.x * blockDim.y + threadIdx.y;
    bool inside = row < rows;
    Pack<ACT, W> held[P];
    float squares = 0.0f;
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 col = (p * blockDim.x + threadIdx.x) * W;
        if (!inside || col >= cols) continue;
        u64 at = (u64)row * cols + col;
        held[p] = load<W>(x + at);
        if (branch) {
            auto other = load<W>(branch + at);
#pragma unroll
            for (int k = 0; k < W; k++) held[p].x[k] = from_float<ACT>(to_float(held[p].x[k]) + to_float(other.x[k]));
            store<W>(sum + at, held[p]);
        }
#pragma unroll
        for (int k = 0; k < W; k++) squares += to_float(held[p].x[k]) * to_float(held[p].x[k]);
    }
    float scale = 1.0f / sqrtf(row_sum(squares, room) / cols + eps);
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 col = (p * blockDim.x + threadIdx.x) * W;
        if (!inside || col >= cols) continue;
#pragma unroll
        for (int k = 0; k < W; k++) held[p].x[k] = from_float<ACT>(weight[col + k] * (to_float(held[p].x[k]) * scale));
        store<W>(out + (u64)row * cols + col, held[p]);
    }
}

// dx = r w dy - x r^3 / cols * sum(w dy x), and `also`, a gradient that reaches x on another way. A block goes through rows
// and keeps its share of dweight in registers; its rows' shares are added up in `partial`, a line a block.
template <int W, int P>
__device__ void rms_norm_grad_rows(const ACT* x, const float* weight, const ACT* dy, const ACT* also, ACT* dx, float* partial,
                                   u32 rows, u32 cols, float eps) {
    extern __shared__ float shared[];
    float* room = shared;
    float* lines = shared + 32 * 8;
    float dweight[P][W];
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
        for (int k = 0; k < W; k++) dweight[p][k] = 0.0f;
    // All rows of a block take part in every turn: the sums below wait for each other.
    for (u32 first = blockIdx.x * blockDim.y; first < rows; first += gridDim.x * blockDim.y) {
        u32 row = first + threadIdx.y;
        bool inside = row < rows;
        Pack<ACT, W> xs[P], ds[P];
        float squares = 0.0f, dot = 0.0f;
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 col = (p * blockDim.x + threadIdx.x) * W;
            if (!inside || col >= cols) continue;
            xs[p] = load<W>(x + (u64)row * cols + col);
            ds[p] = load<W>(dy + (u64)row * cols + col);
#pragma unroll
            for (int k = 0; k < W; k++) {
                float value = to_float(xs[p].x[k]);
                squares += value * value;
                dot += weight[col + k] * to_float(ds[p].x[k]) * value;
            }
        }
        float scale = 1.0f / sqrtf(row_sum(squares, room) / cols + eps);
        float pull = row_sum(dot, room) * scale * scale * scale / cols;
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 col = (p * blockDim.x + threadIdx.x) * W;
            if (!inside || col >= cols) continue;
            u64 at = (u64)row * cols + col;
            Pack<ACT, W> other, out;
            if (also) other = load<W>(also + at);
#pragma unroll
            for (int k = 0; k < W; k++) {
                float value = to_float(xs[p].x[k]), arrived = to_float(ds[p].x[k]);
                dweight[p][k] += arrived * value * scale;
                float made = scale * weight[col + k] * arrived - value * pull;
                out.x[k] = from_float<ACT>(also ? made + to_float(other.x[k]) : made);
            }
            store<W>(dx + at, out);
        }
    }
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 col = (p * blockDim.x + threadIdx.x) * W;
        if (col >= cols) continue;
#pragma unroll
        for (int k = 0; k < W; k++) lines[threadIdx.y * cols + col + k] = dweight[p][k];
    }
    __syncthreads();
    for (u32 col = threadIdx.y * blockDim.x + threadIdx.x; col < cols; col += blockDim.x * blockDim.y) {
        float total = 0.0f;
        for (u32 line = 0; line < blockDim.y; line++) total += lines[line * cols + col];
        partial[(u64)blockIdx.x * cols + col] = total;
    }
}

#define NORM(suffix, W, P)                                                                                              \
    extern "C" __global__ void rms_norm_##suffix(const ACT* x, const ACT* b, const float* w, ACT* s, ACT* y, u32 r, u32 c, \
                                                 float e) {                                                             \
        rms_norm_rows<W, P>(x, b, w, s, y, r, c, e);                                                                    \
    }                                                                                                                   \
    extern "C" __global__ void rms_norm_grad_##suffix(const ACT* x, const float* w, const ACT* dy, const ACT* also, ACT* dx, \
                                                      float* part, u32 r, u32 c, float e) {                             \
        rms_norm_grad_rows<W, P>(x, w, dy, also, dx, part, r, c, e);                                                    \
    }
NORM(v1, WIDE, 1)
NORM(v2, WIDE, 2)
NORM(v4, WIDE, 4)
NORM(s4, 1, 4)

// dweight[c] = the sum of the lines of `partial`, in order. 32 columns a block, 8 threads a column.
extern "C" __global__ void sum_lines(const float* partial, float* dweight, u32 lines, u32 cols) {
    __shared__ float part[8][33];
    u32 col = blockIdx.x * 32 + threadIdx.x;
    float total = 0.0f;
    if (col < cols)
        for (u32 line = threadIdx.y; line < lines; line += 8) total += partial[(u64)line * cols + col];
    part[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        for (int k = 1; k < 8; k++) total += part[k][threadIdx.x];
        dweight[col] = total;
    }
}
