// RMSNorm, alone and after a residual add, or only the scales of its rows; and the gradient.
//
// blockDim.x threads share a row and keep it in registers, P packs of W elements each: every byte is read and written
// once. A block handles blockDim.y rows side by side.

template <int W, int P>
__device__ void rms_norm_rows(const ACT* x, const ACT* branch, const float* weight, ACT* sum, ACT* out, float* scales, u32 rows,
                              u32 cols, float eps) {
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
    if (scales) {
        if (inside && threadIdx.x == 0) scales[row] = scale;
        return;
    }
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 col = (p * blockDim.x + threadIdx.x) * W;
        if (!inside || col >= cols) continue;
        float gain[W];
        load_floats<W>(weight + col, gain);
#pragma unroll
        for (int k = 0; k < W; k++) held[p].x[k] = from_float<ACT>(gain[k] * (to_float(held[p].x[k]) * scale));
        store<W>(out + (u64)row * cols + col, held[p]);
    }
}

// Sums of two values over a row's threads, with one barrier: consecutive iterations use different buffers.
__device__ __forceinline__ float2 row_sums(float a, float b, float2* room, u32 turn) {
    a = warp_sum(a);
    b = warp_sum(b);
    u32 warps = blockDim.x / 32, lane = threadIdx.x % 32;
    if (warps == 1) return make_float2(a, b);
    float2* mine = room + (turn % 2) * 256 + threadIdx.y * 32;
    if (lane == 0) mine[threadIdx.x / 32] = make_float2(a, b);
    __syncthreads();
    float2 part = lane < warps ? mine[lane] : make_float2(0.0f, 0.0f);
    return make_float2(warp_sum(part.x), warp_sum(part.y));
}

// dx = r w dy - x r^3 / cols * sum(w dy x), plus `also`, a gradient that reaches x by another path. A block loops over
// rows and keeps its part of dweight in registers; the parts of its rows are added up in `partial`, one line per block.
//
// Rows in flight lie in a ring of `stages` in shared memory, copied there without passing through registers. A thread
// reads only what it copied itself, so the ring needs no barrier. With no stages (rows too long for the device's shared
// memory), rows are read in place.
template <int W, int P>
__device__ void rms_norm_grad_rows(const ACT* x, const float* weight, const ACT* dy, const ACT* also, ACT* dx, float* partial,
                                   u32 rows, u32 cols, float eps, u32 stages) {
    extern __shared__ __align__(16) float shared[];
    typedef Pack<ACT, W> Part;
    float2* room = (float2*)shared;
    u32 threads = blockDim.x * blockDim.y, own = threadIdx.y * blockDim.x + threadIdx.x;
    Part* ring = (Part*)(shared + 2 * 2 * 256) + own;
    auto slot = [&](u32 stage, int source, int p) { return ring + ((stage * 3 + source) * P + p) * threads; };
    u32 stride = gridDim.x * blockDim.y;
    auto fetch = [&](u32 row, u32 stage) {
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 col = (p * blockDim.x + threadIdx.x) * W;
            if (row >= rows || col >= cols) continue;
            u64 at = (u64)row * cols + col;
            copy_pack(slot(stage, 0, p), x + at);
            copy_pack(slot(stage, 1, p), dy + at);
            if (also) copy_pack(slot(stage, 2, p), also + at);
        }
        end_copies();
    };
    for (u32 stage = 0; stage + 1 < stages; stage++) fetch(blockIdx.x * blockDim.y + threadIdx.y + stage * stride, stage);
    float dweight[P][W], gain[P][W];
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 col = (p * blockDim.x + threadIdx.x) * W;
#pragma unroll
        for (int k = 0; k < W; k++) dweight[p][k] = gain[p][k] = 0.0f;
        if (col < cols) load_floats<W>(weight + col, gain[p]);
    }
    u32 turn = 0, now = 0, next = stages - 1;
    // All rows of a block take part in every iteration, because the sums below contain barriers.
    for (u32 first = blockIdx.x * blockDim.y; first < rows; first += stride, turn++) {
        u32 row = first + threadIdx.y;
        Part xs[P], ds[P], os[P];
        float squares = 0.0f, dot = 0.0f;
        if (stages == 3) wait_copies<1>();
        else wait_copies<0>();
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 col = (p * blockDim.x + threadIdx.x) * W;
            if (row >= rows || col >= cols) continue;
            u64 at = (u64)row * cols + col;
            xs[p] = stages ? *slot(now, 0, p) : load<W>(x + at);
            ds[p] = stages ? *slot(now, 1, p) : load<W>(dy + at);
            if (also) os[p] = stages ? *slot(now, 2, p) : load<W>(also + at);
#pragma unroll
            for (int k = 0; k < W; k++) {
                float value = to_float(xs[p].x[k]);
                squares += value * value;
                dot += gain[p][k] * to_float(ds[p].x[k]) * value;
            }
        }
        if (stages) {
            fetch(row + (stages - 1) * stride, next);
            now = now + 1 == stages ? 0 : now + 1;
            next = next + 1 == stages ? 0 : next + 1;
        }
        float2 sums = row_sums(squares, dot, room, turn);
        float scale = rsqrtf(sums.x / cols + eps), pull = sums.y * scale * scale * scale / cols;
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 col = (p * blockDim.x + threadIdx.x) * W;
            if (row >= rows || col >= cols) continue;
            Part out;
#pragma unroll
            for (int k = 0; k < W; k++) {
                float value = to_float(xs[p].x[k]), arrived = to_float(ds[p].x[k]);
                dweight[p][k] += arrived * value * scale;
                float made = scale * gain[p][k] * arrived - value * pull;
                out.x[k] = from_float<ACT>(also ? made + to_float(os[p].x[k]) : made);
            }
            store<W>(dx + (u64)row * cols + col, out);
        }
    }
    wait_copies<0>();
    __syncthreads();
    float* lines = shared + 2 * 2 * 256;  // the ring is no longer needed
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 col = (p * blockDim.x + threadIdx.x) * W;
        if (col >= cols) continue;
#pragma unroll
        for (int k = 0; k < W; k++) lines[threadIdx.y * cols + col + k] = dweight[p][k];
    }
    __syncthreads();
    for (u32 col = own; col < cols; col += threads) {
        float total = 0.0f;
        for (u32 line = 0; line < blockDim.y; line++) total += lines[line * cols + col];
        partial[(u64)blockIdx.x * cols + col] = total;
    }
}

#define NORM(suffix, W, P, THREADS, BLOCKS)                                                                                           \
    extern "C" __global__ void rms_norm_##suffix(const ACT* x, const ACT* b, const float* w, ACT* s, ACT* y, float* scales, \
                                                 u32 r, u32 c, float e) {                                               \
        in_turn(); rms_norm_rows<W, P>(x, b, w, s, y, scales, r, c, e);                                                                    \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) rms_norm_grad_##suffix(const ACT* x, const float* w, const ACT* dy, const ACT* also, ACT* dx, \
                                                      float* part, u32 r, u32 c, float e, u32 stages) {                 \
        in_turn(); rms_norm_grad_rows<W, P>(x, w, dy, also, dx, part, r, c, e, stages);                                                    \
    }
NORM(v1, WIDE, 1, 256, 2)
NORM(w1, WIDE, 1, 512, 2)
NORM(v2, WIDE, 2, 512, 1)
NORM(v4, WIDE, 4, 512, 1)
NORM(s4, 1, 4, 512, 1)

// dweight[c] = the sum of the lines of `partial`, in order. 16 columns per block, 32 threads per column.
__device__ void sum_of_lines(const float* partial, float* dweight, u32 lines, u32 cols) {
    __shared__ float part[32][17];
    u32 col = blockIdx.x * 16 + threadIdx.x;
    float total = 0.0f;
    if (col < cols) {
#pragma unroll 8
        for (u32 line = threadIdx.y; line < lines; line += 32) total += partial[(u64)line * cols + col];
    }
    part[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        for (int k = 1; k < 32; k++) total += part[k][threadIdx.x];
        dweight[col] = total;
    }
}
extern "C" __global__ void sum_lines(const float* partial, float* dweight, u32 lines, u32 cols) {
    in_turn();
    sum_of_lines(partial, dweight, lines, cols);
}

// The same for all norms of a step at once, one row of blocks each.
struct Lines {
    const float* partial;
    float* dweight;
    u64 lines, cols;
};
extern "C" __global__ void sum_all_lines(const Lines* all) {
    in_turn();
    Lines one = all[blockIdx.y];
    sum_of_lines(one.partial, one.dweight, (u32)one.lines, (u32)one.cols);
}
