// Element-wise kernels: residual add, products, averages, SiLU, GELU and SwiGLU with their gradients, the rotation.
//
// Operands are rows x columns, each with its own pitch in elements. `_v` handles 16 bytes per thread, `_s` one element.

#define EACH_PACK(W)                                                                               \
    u32 a_row = cols / W, all = a_row * rows;                                                      \
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x, row = i / a_row, col = i % a_row * W; i < all; \
         i += gridDim.x * blockDim.x, row = i / a_row, col = i % a_row * W)

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

template <int W>
__device__ void add_rows(const ACT* x, const ACT* y, ACT* out, u32 rows, u32 cols, u64 ldx, u64 ldy, u64 ldo) {
    EACH_PACK(W) {
        auto a = load<W>(x + row * ldx + col), b = load<W>(y + row * ldy + col);
#pragma unroll
        for (int k = 0; k < W; k++) a.x[k] = from_float<ACT>(to_float(a.x[k]) + to_float(b.x[k]));
        store<W>(out + row * ldo + col, a);
    }
}

template <int W>
__device__ void mul_rows(const ACT* x, const ACT* y, ACT* out, u32 rows, u32 cols, u64 ldx, u64 ldy, u64 ldo) {
    EACH_PACK(W) {
        auto a = load<W>(x + row * ldx + col), b = load<W>(y + row * ldy + col);
#pragma unroll
        for (int k = 0; k < W; k++) a.x[k] = from_float<ACT>(to_float(a.x[k]) * to_float(b.x[k]));
        store<W>(out + row * ldo + col, a);
    }
}

template <int W>
__device__ void scale_rows(const ACT* x, ACT* out, u32 rows, u32 cols, u64 ldx, u64 ldo, float factor) {
    EACH_PACK(W) {
        auto a = load<W>(x + row * ldx + col);
#pragma unroll
        for (int k = 0; k < W; k++) a.x[k] = from_float<ACT>(factor * to_float(a.x[k]));
        store<W>(out + row * ldo + col, a);
    }
}

template <int W>
__device__ void silu_rows(const ACT* x, ACT* out, u32 rows, u32 cols, u64 ldx, u64 ldo) {
    EACH_PACK(W) {
        auto a = load<W>(x + row * ldx + col);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float z = to_float(a.x[k]);
            a.x[k] = from_float<ACT>(z * sigmoid(z));
        }
        store<W>(out + row * ldo + col, a);
    }
}

template <int W>
__device__ void silu_grad_rows(const ACT* x, const ACT* dy, ACT* dx, u32 rows, u32 cols, u64 ldx, u64 lddy, u64 lddx) {
    EACH_PACK(W) {
        auto a = load<W>(x + row * ldx + col), d = load<W>(dy + row * lddy + col);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float z = to_float(a.x[k]), s = sigmoid(z);
            d.x[k] = from_float<ACT>(to_float(d.x[k]) * s * (1.0f + z * (1.0f - s)));
        }
        store<W>(dx + row * lddx + col, d);
    }
}

// (1 + tanh(u)) / 2 is sigmoid(2 u).
__device__ __forceinline__ float gelu_share(float x) { return sigmoid(1.59576912f * (x + 0.044715f * x * x * x)); }

template <int W>
__device__ void gelu_rows(const ACT* x, ACT* out, u32 rows, u32 cols, u64 ldx, u64 ldo) {
    EACH_PACK(W) {
        auto a = load<W>(x + row * ldx + col);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float z = to_float(a.x[k]);
            a.x[k] = from_float<ACT>(z * gelu_share(z));
        }
        store<W>(out + row * ldo + col, a);
    }
}

template <int W>
__device__ void gelu_grad_rows(const ACT* x, const ACT* dy, ACT* dx, u32 rows, u32 cols, u64 ldx, u64 lddy, u64 lddx) {
    EACH_PACK(W) {
        auto a = load<W>(x + row * ldx + col), d = load<W>(dy + row * lddy + col);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float z = to_float(a.x[k]), s = gelu_share(z), slope = 1.59576912f * (1.0f + 3.0f * 0.044715f * z * z);
            d.x[k] = from_float<ACT>(to_float(d.x[k]) * (s + z * s * (1.0f - s) * slope));
        }
        store<W>(dx + row * lddx + col, d);
    }
}

template <int W>
__device__ void swiglu_rows(const ACT* gate, const ACT* up, ACT* out, u32 rows, u32 cols, u64 ldg, u64 ldu, u64 ldo) {
    EACH_PACK(W) {
        auto g = load<W>(gate + row * ldg + col), u = load<W>(up + row * ldu + col);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float z = to_float(g.x[k]);
            g.x[k] = from_float<ACT>(z * sigmoid(z) * to_float(u.x[k]));
        }
        store<W>(out + row * ldo + col, g);
    }
}

template <int W>
__device__ void swiglu_grad_rows(const ACT* gate, const ACT* up, const ACT* dy, ACT* dgate, ACT* dup, u32 rows, u32 cols,
                                 u64 ldg, u64 ldu, u64 lddy, u64 lddg, u64 lddu) {
    EACH_PACK(W) {
        auto g = load<W>(gate + row * ldg + col), u = load<W>(up + row * ldu + col), d = load<W>(dy + row * lddy + col);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float z = to_float(g.x[k]), s = sigmoid(z), arrived = to_float(d.x[k]);
            g.x[k] = from_float<ACT>(arrived * to_float(u.x[k]) * s * (1.0f + z * (1.0f - s)));
            u.x[k] = from_float<ACT>(arrived * z * s);
        }
        store<W>(dgate + row * lddg + col, g);
        store<W>(dup + row * lddu + col, u);
    }
}

// Rotates pairs (i, i + half) of each head by the position's angle; `sign` -1 rotates back. One thread handles W pairs.
template <int W>
__device__ void rope_rows(const ACT* x, const float* cosine, const float* sine, ACT* out, u32 rows, u32 heads, u32 half,
                          u32 seq, u64 ldx, u64 ldo, float sign) {
    u32 cols = heads * half;
    EACH_PACK(W) {
        u32 head = col / half, pair = col % half, at = head * half * 2 + pair;
        const float *c = cosine + (row % seq) * half + pair, *s = sine + (row % seq) * half + pair;
        auto a = load<W>(x + row * ldx + at), b = load<W>(x + row * ldx + at + half);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float first = to_float(a.x[k]), second = to_float(b.x[k]), turn = sign * s[k];
            a.x[k] = from_float<ACT>(first * c[k] - second * turn);
            b.x[k] = from_float<ACT>(second * c[k] + first * turn);
        }
        store<W>(out + row * ldo + at, a);
        store<W>(out + row * ldo + at + half, b);
    }
}

#define BOTH(name, parameters, arguments)                                \
    extern "C" __global__ void name##_v parameters { in_turn(); name##_rows<WIDE> arguments; } \
    extern "C" __global__ void name##_s parameters { in_turn(); name##_rows<1> arguments; }

BOTH(add, (const ACT* x, const ACT* y, ACT* o, u32 r, u32 c, u64 lx, u64 ly, u64 lo), (x, y, o, r, c, lx, ly, lo))
BOTH(mul, (const ACT* x, const ACT* y, ACT* o, u32 r, u32 c, u64 lx, u64 ly, u64 lo), (x, y, o, r, c, lx, ly, lo))
BOTH(scale, (const ACT* x, ACT* o, u32 r, u32 c, u64 lx, u64 lo, float f), (x, o, r, c, lx, lo, f))
BOTH(silu, (const ACT* x, ACT* o, u32 r, u32 c, u64 lx, u64 lo), (x, o, r, c, lx, lo))
BOTH(silu_grad, (const ACT* x, const ACT* y, ACT* o, u32 r, u32 c, u64 lx, u64 ly, u64 lo), (x, y, o, r, c, lx, ly, lo))
BOTH(gelu, (const ACT* x, ACT* o, u32 r, u32 c, u64 lx, u64 lo), (x, o, r, c, lx, lo))
BOTH(gelu_grad, (const ACT* x, const ACT* y, ACT* o, u32 r, u32 c, u64 lx, u64 ly, u64 lo), (x, y, o, r, c, lx, ly, lo))
BOTH(swiglu, (const ACT* x, const ACT* y, ACT* o, u32 r, u32 c, u64 lx, u64 ly, u64 lo), (x, y, o, r, c, lx, ly, lo))
BOTH(swiglu_grad,
     (const ACT* g, const ACT* u, const ACT* d, ACT* dg, ACT* du, u32 r, u32 c, u64 lg, u64 lu, u64 ld, u64 ldg, u64 ldu),
     (g, u, d, dg, du, r, c, lg, lu, ld, ldg, ldu))
BOTH(rope, (const ACT* x, const float* c, const float* s, ACT* o, u32 r, u32 h, u32 half, u32 seq, u64 lx, u64 lo, float sign),
     (x, c, s, o, r, h, half, seq, lx, lo, sign))

// Adds to a sum that is kept in float.
extern "C" __global__ void accumulate(float* sum, const ACT* x, u64 n) {
    in_turn();
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) sum[i] += to_float(x[i]);
}
