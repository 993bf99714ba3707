// Adds rows of a table cyclically and sums them back; copies columns out and in.

// W elements of a table's row as floats, whether it is stored in float or in the type of activations.
template <int W>
__device__ __forceinline__ void load_row(const float* at, float (&to)[W]) { load_floats<W>(at, to); }
template <int W>
__device__ __forceinline__ void load_row(const bf16* at, float (&to)[W]) {
    auto pack = load<W>(at);
#pragma unroll
    for (int k = 0; k < W; k++) to[k] = to_float(pack.x[k]);
}

// Row t of the table's first `period` rows is added to rows t, t + period, ...
template <int W, typename T>
__device__ void add_table_rows(const ACT* x, const T* table, ACT* out, u32 rows, u32 cols, u32 period) {
    u32 a_row = cols / W, all = a_row * rows;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += gridDim.x * blockDim.x) {
        u32 row = i / a_row, col = (i - row * a_row) * W;
        auto pack = load<W>(x + (u64)row * cols + col);
        float added[W];
        load_row<W>(table + (period == 1 ? 0 : (u64)(row % period) * cols) + col, added);
#pragma unroll
        for (int k = 0; k < W; k++) pack.x[k] = from_float<ACT>(to_float(pack.x[k]) + added[k]);
        store<W>(out + (u64)row * cols + col, pack);
    }
}

#define ADD(name, W, T)                                                                                          \
    extern "C" __global__ void name(const ACT* x, const T* table, ACT* out, u32 rows, u32 cols, u32 period) {    \
        in_turn();                                                                                               \
        add_table_rows<W>(x, table, out, rows, cols, period);                                                    \
    }
ADD(add_floats_v, WIDE, float)
ADD(add_floats_s, 1, float)
ADD(add_table_v, WIDE, ACT)
ADD(add_table_s, 1, ACT)

// Sums of columns, one line per row of blocks: 32 packs of columns per block, 8 threads per pack.
template <int W>
__device__ void sum_columns_of(const ACT* x, float* lines, u32 rows, u32 cols) {
    __shared__ float part[8][32 * W + 1];
    u32 col = (blockIdx.x * 32 + threadIdx.x) * W;
    float total[W];
#pragma unroll
    for (int k = 0; k < W; k++) total[k] = 0.0f;
    if (col < cols) {
#pragma unroll 4
        for (u32 row = blockIdx.y * 8 + threadIdx.y; row < rows; row += gridDim.y * 8) {
            auto pack = load<W>(x + (u64)row * cols + col);
#pragma unroll
            for (int k = 0; k < W; k++) total[k] += to_float(pack.x[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < W; k++) part[threadIdx.y][threadIdx.x * W + k] = total[k];
    __syncthreads();
    u32 first = blockIdx.x * 32 * W;
    for (u32 i = threadIdx.y * 32 + threadIdx.x; i < 32 * W && first + i < cols; i += 256) {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) sum += part[k][i];
        lines[(u64)blockIdx.y * cols + first + i] = sum;
    }
}
extern "C" __global__ void sum_columns_v(const ACT* x, float* lines, u32 rows, u32 cols) {
    in_turn();
    sum_columns_of<WIDE>(x, lines, rows, cols);
}
extern "C" __global__ void sum_columns_s(const ACT* x, float* lines, u32 rows, u32 cols) {
    in_turn();
    sum_columns_of<1>(x, lines, rows, cols);
}

// Row t of the result is the sum of rows t, t + period, ... of x; rows past `period` are zero.
extern "C" __global__ void sum_periods(const ACT* x, ACT* out, u32 rows, u32 cols, u32 period, u64 elements) {
    in_turn();
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < elements; i += (u64)gridDim.x * blockDim.x) {
        u64 row = i / cols, col = i % cols;
        float total = 0.0f;
        if (row < period) {
            for (; row < rows; row += period) total += to_float(x[row * cols + col]);
        }
        out[i] = from_float<ACT>(total);
    }
}

// Copies a block of columns from one matrix into another, each with its own pitch.
template <int W>
__device__ void copy_block(const ACT* from, ACT* to, u32 rows, u32 cols, u64 from_pitch, u64 to_pitch) {
    u32 a_row = cols / W;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (u64)a_row * rows; i += (u64)gridDim.x * blockDim.x) {
        u64 row = i / a_row, col = i % a_row * W;
        store<W>(to + row * to_pitch + col, load<W>(from + row * from_pitch + col));
    }
}
extern "C" __global__ void copy_columns_v(const ACT* from, ACT* to, u32 rows, u32 cols, u64 from_pitch, u64 to_pitch) {
    in_turn();
    copy_block<WIDE>(from, to, rows, cols, from_pitch, to_pitch);
}
extern "C" __global__ void copy_columns_s(const ACT* from, ACT* to, u32 rows, u32 cols, u64 from_pitch, u64 to_pitch) {
    in_turn();
    copy_block<1>(from, to, rows, cols, from_pitch, to_pitch);
}
