// Instructions shared by the tiled attention kernels, one function each: copies, matrices in shared memory, small
// arithmetic.

__device__ __forceinline__ void copy16(u32 to, const void* from, int bytes) {  // bytes 0: writes zeros
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy4(u32 to, const void* from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Barrier for some threads of the block.
__device__ __forceinline__ void meet(int barrier, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ u32 pack(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
__device__ __forceinline__ float low_of(u32 packed) { return __uint_as_float(packed << 16); }
__device__ __forceinline__ float high_of(u32 packed) { return __uint_as_float(packed & 0xffff0000u); }

__device__ __forceinline__ uint4 read_shared16(u32 address) {
    uint4 value;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "r"(address) : "memory");
    return value;
}
__device__ __forceinline__ void write_shared16(u32 address, uint4 value) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}
__device__ __forceinline__ void write_shared4(u32 address, u32 value) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory"); }
__device__ __forceinline__ float2 read_shared_floats(u32 address) {
    float2 value;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address) : "memory");
    return value;
}
// Four matrices of 8 x 8 elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void read_matrices(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address));
}
__device__ __forceinline__ void read_matrices_transposed(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address));
}
// sum[16 x 8] += a[16 x 16] * b[16 x 8]
__device__ __forceinline__ void multiply_add(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Partial sums that blocks pass to each other bypass L1, which does not see other blocks' writes.
__device__ __forceinline__ float4 read_handed_on(const float4* from) {
    float4 value;
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w) : "l"(from) : "memory");
    return value;
}
__device__ __forceinline__ void hand_on(float4* to, float4 value) {
    asm volatile("st.global.cg.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w) : "memory");
}
// Adds in any order.
__device__ __forceinline__ void add_to(float4* to, float4 value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w) : "memory");
#else
    atomicAdd(&to->x, value.x);
    atomicAdd(&to->y, value.y);
    atomicAdd(&to->z, value.z);
    atomicAdd(&to->w, value.w);
#endif
}
// Reads the turn. `peek_turn` does not wait: the partial sums passed on before are read after a barrier and bypass L1,
// and they were in L2 before the turn was passed (a fence here costs 4% of the pass). After `read_turn` they are
// visible in any case.
__device__ __forceinline__ int peek_turn(const int* from) {
    int value;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
__device__ __forceinline__ int read_turn(const int* from) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
// Call after a block barrier: whoever reads the turn sees everything that all threads of the block wrote before.
__device__ __forceinline__ void give_turn(int* to, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ u32 shared_tiles() {
    extern __shared__ unsigned char shared_memory[];
    return ((u32)__cvta_generic_to_shared(shared_memory) + 1023) & ~1023u;  // the swizzle repeats every 1024 bytes
}
