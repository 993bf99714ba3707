// Packs of 16 bytes and sums over threads, for kernels that process rows.
//
// ACT is the type in which activations and matrix weights are stored: float, or bf16 when the file is compiled with
// -DACT_BF16. All arithmetic is in float.

#ifdef ACT_BF16
typedef bf16 ACT;
#else
typedef float ACT;
#endif

// W elements that are loaded and stored together: 16 bytes if rows allow it, else one element.
template <typename T, int W>
struct alignas(sizeof(T) * W) Pack {
    T x[W];
};

template <int W, typename T>
__device__ __forceinline__ Pack<T, W> load(const T* at) { return *(const Pack<T, W>*)at; }
template <int W, typename T>
__device__ __forceinline__ void store(T* at, Pack<T, W> pack) { *(Pack<T, W>*)at = pack; }

// W floats; 16-byte aligned if W is a multiple of 4.
template <int W>
__device__ __forceinline__ void load_floats(const float* at, float (&to)[W]) {
    constexpr int EACH = W % 4 == 0 ? 4 : 1;
#pragma unroll
    for (int first = 0; first < W; first += EACH) {
        auto pack = load<EACH>(at + first);
#pragma unroll
        for (int k = 0; k < EACH; k++) to[first + k] = pack.x[k];
    }
}

// The same for data that is used once and need not stay in the caches. Packs of 8 or 16 bytes.
template <int W, typename T>
__device__ __forceinline__ Pack<T, W> load_once(const T* at) {
    Pack<T, W> pack;
    if constexpr (sizeof(pack) == 16) *(uint4*)&pack = __ldcs((const uint4*)at);
    else if constexpr (sizeof(pack) == 8) *(uint2*)&pack = __ldcs((const uint2*)at);
    else pack = load<W>(at);
    return pack;
}
template <int W, typename T>
__device__ __forceinline__ void store_once(T* at, Pack<T, W> pack) {
    if constexpr (sizeof(pack) == 16) __stcs((uint4*)at, *(uint4*)&pack);
    else if constexpr (sizeof(pack) == 8) __stcs((uint2*)at, *(uint2*)&pack);
    else store<W>(at, pack);
}

// Copies a pack to shared memory asynchronously, if it is 16 bytes and the device is Ampere or later; otherwise
// synchronously. Visible to the thread itself after `wait_copies`, to others after a barrier.
template <int W, typename T>
__device__ __forceinline__ void copy_pack(Pack<T, W>* to, const T* from) {
#if __CUDA_ARCH__ >= 800
    if constexpr (sizeof(*to) == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
        return;
    }
#endif
    *to = load<W>(from);
}
// Ends a group of the copies since the last call.
__device__ __forceinline__ void end_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until all but the last LEFT groups have arrived.
template <int LEFT>
__device__ __forceinline__ void wait_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

// Number of activation elements in 16 bytes.
#define WIDE (16 / (int)sizeof(ACT))

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffff, x, lane);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, lane));
    return x;
}

// The sum over the threads of one row of a block (blockDim.x threads, a multiple of 32; several rows along y), returned
// to each of them. `room` holds 32 floats per row of the block. Always in the same order.
__device__ __forceinline__ float row_sum(float x, float* room) {
    x = warp_sum(x);
    int warps = blockDim.x / 32;
    if (warps == 1) return x;
    float* mine = room + threadIdx.y * 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = x;
    __syncthreads();
    float total = threadIdx.x % 32 < warps ? mine[threadIdx.x % 32] : 0.0f;
    return warp_sum(total);
}
// fmaxf drops a NaN; the sums that follow a maximum bring it back.
__device__ __forceinline__ float row_max(float x, float* room) {
    x = warp_max(x);
    int warps = blockDim.x / 32;
    if (warps == 1) return x;
    float* mine = room + threadIdx.y * 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = x;
    __syncthreads();
    float total = threadIdx.x % 32 < warps ? mine[threadIdx.x % 32] : -3.4e38f;
    return warp_max(total);
}
