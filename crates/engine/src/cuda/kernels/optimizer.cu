// AdamW over one parameter or all of them in one launch, sums of squares and the clipping scale, without a read by the
// host.
//
// A block handles one chunk; `chunks` gives its tensor and its number. Weights, moments and gradients are
// float unless WEIGHT_BF16 / GRADIENT_BF16 say otherwise (moments have the type of the weights).

#ifdef WEIGHT_BF16
typedef bf16 WEIGHT;
#else
typedef float WEIGHT;
#endif
#ifdef GRADIENT_BF16
typedef bf16 GRADIENT;
#else
typedef float GRADIENT;
#endif

#ifndef CHUNK
#define CHUNK 16384
#endif

struct Tensor {
    void *weight, *first, *second;
    const void* gradient;
    bf16* half; // a copy of the weight that products read, or null
    u64 elements;
    u64 float_weight;    // a weight, moments and gradient that stay float even if the others do not
    u64 float_gradient;
    u64 is_matrix;
};

struct Chunk {
    u32 tensor, number;
};

// Noise for stochastic rounding: a hash of the element's index and values.
__device__ __forceinline__ u32 noise(u32 a, u32 b, u32 c) {
    u32 h = a * 0x9E3779B9u ^ b * 0x85EBCA6Bu ^ c * 0xC2B2AE35u;
    h ^= h >> 16; h *= 0x7FEB352Du; h ^= h >> 15; h *= 0x846CA68Bu; h ^= h >> 16;
    return h;
}
// Stochastic rounding to a bf16 neighbour, with probability by distance: the mean over many roundings is the number
// itself.
__device__ __forceinline__ bf16 round_by_chance(float x, u32 random) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return from_float<bf16>(x);
    bf16 out;
    out.bits = (u16)((bits + (random & 0xffffu)) >> 16);
    return out;
}

struct Rates {
    float decay, one_minus_beta1, beta1, one_minus_beta2, beta2, step, root, eps, clip;
};

__device__ __forceinline__ Rates rates_of(const float* rates, const float* clip, float beta1, float one_minus_beta1,
                                          float beta2, float one_minus_beta2, float eps, float weight_decay) {
    Rates r;
    r.decay = 1.0f - rates[0] * weight_decay;
    r.beta1 = beta1;
    r.one_minus_beta1 = one_minus_beta1;
    r.beta2 = beta2;
    r.one_minus_beta2 = one_minus_beta2;
    r.step = rates[0] / rates[1];
    r.root = 1.0f / rates[2];
    r.eps = eps;
    r.clip = clip ? *clip : 1.0f;
    return r;
}

__device__ __forceinline__ float updated(float weight, float& first, float& second, float gradient, const Rates& r) {
    gradient *= r.clip;
    first = r.beta1 * first + r.one_minus_beta1 * gradient;
    second = r.beta2 * second + r.one_minus_beta2 * gradient * gradient;
    return weight * r.decay - r.step * first / (sqrtf(second) * r.root + r.eps);
}

template <typename T, typename G>
__device__ __forceinline__ void update_one(const Tensor& t, u64 i, const Rates& r) {
    float m = to_float(((T*)t.first)[i]), v = to_float(((T*)t.second)[i]);
    float made = updated(to_float(((T*)t.weight)[i]), m, v, to_float(((const G*)t.gradient)[i]), r);
    if constexpr (sizeof(T) == 2) {
        u32 random = noise((u32)i, __float_as_uint(m), __float_as_uint(v));
        ((T*)t.weight)[i] = round_by_chance(made, random);
        ((T*)t.second)[i] = round_by_chance(v, noise(random, (u32)i, 7u));
    } else {
        ((T*)t.weight)[i] = from_float<T>(made);
        ((T*)t.second)[i] = from_float<T>(v);
    }
    ((T*)t.first)[i] = from_float<T>(m);
    if (t.half) t.half[i] = from_float<bf16>(made);
}

// A whole chunk: each thread has two packs of four in flight at a time.
template <typename T, typename G>
__device__ __forceinline__ void update_chunk(const Tensor& t, u64 first, u64 end, const Rates& r) {
    constexpr int W = 4, AHEAD = 2;
    if (end - first < CHUNK) {
        for (u64 i = first + threadIdx.x; i < end; i += blockDim.x) update_one<T, G>(t, i, r);
        return;
    }
    T *weights = (T*)t.weight, *ms = (T*)t.first, *vs = (T*)t.second;
    const G* gradients = (const G*)t.gradient;
    for (u64 start = first + threadIdx.x * W; start < end; start += AHEAD * blockDim.x * W) {
        Pack<T, W> w[AHEAD], m[AHEAD], v[AHEAD];
        Pack<G, W> g[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            u64 i = start + a * blockDim.x * W;
            w[a] = load_once<W>(weights + i);
            m[a] = load_once<W>(ms + i);
            v[a] = load_once<W>(vs + i);
            g[a] = load_once<W>(gradients + i);
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            u64 i = start + a * blockDim.x * W;
            Pack<bf16, W> h;
#pragma unroll
            for (int k = 0; k < W; k++) {
                float mk = to_float(m[a].x[k]), vk = to_float(v[a].x[k]);
                float made = updated(to_float(w[a].x[k]), mk, vk, to_float(g[a].x[k]), r);
                if constexpr (sizeof(T) == 2) {
                    u32 random = noise((u32)(i + k), __float_as_uint(mk), __float_as_uint(vk));
                    w[a].x[k] = round_by_chance(made, random);
                    v[a].x[k] = round_by_chance(vk, noise(random, (u32)(i + k), 7u));
                } else {
                    w[a].x[k] = from_float<T>(made);
                    v[a].x[k] = from_float<T>(vk);
                }
                m[a].x[k] = from_float<T>(mk);
                h.x[k] = from_float<bf16>(made);
            }
            store_once<W>(weights + i, w[a]);
            store_once<W>(ms + i, m[a]);
            store_once<W>(vs + i, v[a]);
            if (t.half) store<W>(t.half + i, h);
        }
    }
}

// The rates of tensor n start n * stride floats after the first; if the second rate is zero, the tensor is not updated.
extern "C" __global__ void adamw(const Tensor* tensors, const Chunk* chunks, const float* rates, u32 stride, const float* clip,
                                 float beta1, float one_minus_beta1, float beta2, float one_minus_beta2, float eps,
                                 float weight_decay, float vector_decay) {
    in_turn();
    Chunk chunk = chunks[blockIdx.x];
    rates += (u64)chunk.tensor * stride;
    if (rates[1] == 0.0f) return;
    Tensor t = tensors[chunk.tensor];
    u64 first = (u64)chunk.number * CHUNK, end = first + CHUNK < t.elements ? first + CHUNK : t.elements;
    Rates r = rates_of(rates, clip, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, t.is_matrix ? weight_decay : vector_decay);
    if (t.float_weight && t.float_gradient) update_chunk<float, float>(t, first, end, r);
    else update_chunk<WEIGHT, GRADIENT>(t, first, end, r);
}

__device__ __forceinline__ float block_sum(float x) {
    __shared__ float room[32];
    return row_sum(x, room);
}

// partial[block] = the sum of squares of a chunk of gradients
extern "C" __global__ void squares(const Tensor* tensors, const Chunk* chunks, float* partial) {
    in_turn();
    Chunk chunk = chunks[blockIdx.x];
    Tensor t = tensors[chunk.tensor];
    u64 first = (u64)chunk.number * CHUNK, end = first + CHUNK < t.elements ? first + CHUNK : t.elements;
    float total = 0.0f;
    for (u64 i = first + threadIdx.x; i < end; i += blockDim.x) {
        float g = t.float_gradient ? ((const float*)t.gradient)[i] : to_float(((const GRADIENT*)t.gradient)[i]);
        total += g * g;
    }
    total = block_sum(total);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__device__ __forceinline__ double sum_of_all(const float* x, u32 n) {
    __shared__ double part[1024];
    double total = 0.0;
    for (u32 i = threadIdx.x; i < n; i += 1024) total += x[i];
    part[threadIdx.x] = total;
    for (u32 half = 512; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    __syncthreads();
    return part[0];
}

// One block of 1024 threads: the sum of the partial sums.
extern "C" __global__ void total(const float* partial, float* out, u32 n) {
    in_turn();
    double sum = sum_of_all(partial, n);
    if (threadIdx.x == 0) out[0] = (float)sum;
}

// One block of 1024 threads: the scale for all gradients and their norm. A NaN norm stays NaN.
extern "C" __global__ void clip_from(const float* partial, float* scale, float* norm, u32 n, float max_norm) {
    in_turn();
    double length = sqrt(sum_of_all(partial, n)), factor = max_norm / (length + 1e-6);
    if (threadIdx.x == 0) {
        if (scale) scale[0] = factor > 1.0 ? 1.0f : (float)factor;
        norm[0] = (float)length;
    }
}

// The same from separate sums of squares.
extern "C" __global__ void clip_scale(const float* const* squared, float* scale, float* norm, u32 n, double max_norm) {
    in_turn();
    double sum = 0.0;
    for (u32 i = 0; i < n; i++) sum += *squared[i];
    double length = sqrt(sum), factor = max_norm / (length + 1e-6);
    scale[0] = factor > 1.0 ? 1.0f : (float)factor;
    norm[0] = (float)length;
}

#define EACH(n) for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x)

// A weight that exists only in half precision is rounded stochastically; its copy, if any, to nearest.
template <typename T>
__device__ __forceinline__ void put_weight(T* weight, bf16* half, u64 i, float made, float beside) {
    if constexpr (sizeof(T) == 2) weight[i] = round_by_chance(made, noise((u32)i, __float_as_uint(made), __float_as_uint(beside)));
    else weight[i] = from_float<T>(made);
    if (half) half[i] = from_float<bf16>(made);
}

// The decay is part of the gradient; `buffer` is null without momentum.
extern "C" __global__ void sgd(WEIGHT* weight, WEIGHT* buffer, const GRADIENT* gradient, const float* rates, bf16* half,
                               const float* clip, u64 n, float momentum, float decay) {
    in_turn();
    if (rates[1] == 0.0f) return;
    float rate = rates[0], scale = clip ? *clip : 1.0f;
    EACH(n) {
        float w = to_float(weight[i]), step = to_float(gradient[i]) * scale + decay * w;
        if (buffer) {
            step += momentum * to_float(buffer[i]);
            buffer[i] = from_float<WEIGHT>(step);
        }
        put_weight(weight, half, i, w - rate * step, step);
    }
}

extern "C" __global__ void muon_momentum(WEIGHT* buffer, const GRADIENT* gradient, GRADIENT* out, const float* rates,
                                         const float* clip, u64 n, float momentum, float rest) {
    in_turn();
    bool stands = rates[1] == 0.0f;
    float scale = rest * (clip ? *clip : 1.0f);
    EACH(n) {
        if (stands) {
            out[i] = from_float<GRADIENT>(0.0f);
            continue;
        }
        float fresh = to_float(gradient[i]) * scale, kept = momentum * to_float(buffer[i]) + fresh;
        buffer[i] = from_float<WEIGHT>(kept);
        out[i] = from_float<GRADIENT>(momentum * kept + fresh);
    }
}

// A NaN norm stays NaN.
extern "C" __global__ void unit_norm(const GRADIENT* x, const float* squares, GRADIENT* out, u64 n, float least) {
    in_turn();
    float norm = sqrtf(*squares), factor = 1.0f / (norm < least ? least : norm);
    EACH(n) out[i] = from_float<GRADIENT>(to_float(x[i]) * factor);
}

extern "C" __global__ void blend(const GRADIENT* x, const GRADIENT* y, GRADIENT* out, u64 n, float of_x, float of_y) {
    in_turn();
    EACH(n) out[i] = from_float<GRADIENT>(of_x * to_float(x[i]) + of_y * to_float(y[i]));
}

extern "C" __global__ void muon_update(WEIGHT* weight, const GRADIENT* direction, const float* rates, bf16* half, u64 n,
                                       float scale, float weight_decay) {
    in_turn();
    if (rates[1] == 0.0f) return;
    float rate = rates[0], stays = 1.0f - rate * weight_decay, step = rate * scale;
    EACH(n) {
        float along = to_float(direction[i]);
        put_weight(weight, half, i, stays * to_float(weight[i]) - step * along, along);
    }
}
