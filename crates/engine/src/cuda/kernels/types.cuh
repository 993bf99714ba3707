// The start of every kernel file: short type names, and bf16. No toolkit header is needed.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct bf16 {
    u16 bits;
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) { return x; }
// Rounds to nearest, ties to even.
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
    bf16 out;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
#else
    u32 bits = __float_as_uint(x);
    out.bits = x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#endif
    return out;
}

// The first statement of every kernel. A replayed step launches a kernel before the previous one has ended: here it
// waits for that one's last byte, and lets the next be launched. Only the start of its blocks overlaps.
__device__ __forceinline__ void in_turn() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
