// Draws weights by counter, with the same bytes as the host: Philox4x32-10, and Box-Muller in double precision with the
// logarithm, sine and cosine written out. Compiled without contraction to fused multiply-adds.

__device__ __forceinline__ void philox(u32 (&x)[4], u32 k0, u32 k1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 left = (u64)x[0] * 0xD2511F53u, right = (u64)x[2] * 0xCD9E8D57u;
        u32 a = (u32)(right >> 32) ^ x[1] ^ k0, b = (u32)right, c = (u32)(left >> 32) ^ x[3] ^ k1, d = (u32)left;
        x[0] = a; x[1] = b; x[2] = c; x[3] = d;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

__device__ __forceinline__ double ln_of_unit(double x) {
    u64 bits = __double_as_longlong(x);
    int exponent = (int)(bits >> 52) - 1023;
    double mantissa = __longlong_as_double((bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
    if (mantissa >= 1.41421356237309504880) {
        mantissa *= 0.5;
        exponent += 1;
    }
    double s = (mantissa - 1.0) / (mantissa + 1.0), s2 = s * s, series = 0.0;
    const double odd[8] = {15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0};
#pragma unroll
    for (int i = 0; i < 8; i++) series = series * s2 + 1.0 / odd[i];
    return (double)exponent * 0.693147180559945309417 + 2.0 * s * series;
}

__device__ __forceinline__ void sine_cosine_of_turn(u32 word, double& sine, double& cosine) {
    u32 quarter = (word + (1u << 29)) >> 30;
    int left_over = (int)(word - (quarter << 30));
    double angle = (double)left_over * (6.28318530717958647693 / 4294967296.0), square = angle * angle;
    const double sine_pairs[6] = {12.0 * 13.0, 10.0 * 11.0, 8.0 * 9.0, 6.0 * 7.0, 4.0 * 5.0, 2.0 * 3.0};
    const double cosine_pairs[7] = {13.0 * 14.0, 11.0 * 12.0, 9.0 * 10.0, 7.0 * 8.0, 5.0 * 6.0, 3.0 * 4.0, 1.0 * 2.0};
    double s = 1.0, c = 1.0;
#pragma unroll
    for (int i = 0; i < 6; i++) s = 1.0 - s * square / sine_pairs[i];
    s *= angle;
#pragma unroll
    for (int i = 0; i < 7; i++) c = 1.0 - c * square / cosine_pairs[i];
    switch (quarter) {
        case 0: sine = s; cosine = c; break;
        case 1: sine = c; cosine = -s; break;
        case 2: sine = -s; cosine = -c; break;
        default: sine = -c; cosine = s;
    }
}

__device__ __forceinline__ void normal_pair(u32 radius_word, u32 angle_word, float* out) {
    double unit = ((double)radius_word + 0.5) * (1.0 / 4294967296.0), radius = sqrt(-2.0 * ln_of_unit(unit)), sine, cosine;
    sine_cosine_of_turn(angle_word, sine, cosine);
    out[0] = (float)(radius * cosine);
    out[1] = (float)(radius * sine);
}

// Element i of the stream (seed, name) times `spread`, for all n elements; four adjacent ones share a block of the
// generator.
// Written as float, as bf16, or both.
extern "C" __global__ void draw_normal(float* out, bf16* half, u64 n, u32 seed_low, u32 seed_high, u32 name_low, u32 name_high,
                                       float spread) {
    in_turn();
    u64 blocks = (n + 3) / 4;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < blocks; i += (u64)gridDim.x * blockDim.x) {
        u32 x[4] = {(u32)i, (u32)(i >> 32), name_low, name_high};
        philox(x, seed_low, seed_high);
        float normals[4];
        normal_pair(x[0], x[1], normals);
        normal_pair(x[2], x[3], normals + 2);
        for (int k = 0; k < 4 && i * 4 + k < n; k++) {
            float value = normals[k] * spread;
            if (out) out[i * 4 + k] = value;
            if (half) half[i * 4 + k] = from_float<bf16>(value);
        }
    }
}
