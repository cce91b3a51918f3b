// Clocks a test bench that says by itself when something is wrong.
#include <cstdint>

#include "Vaccel.h"
#include "verilated.h"

// The first of `cycles` cycles in which `wrong` was not 0, or -1; what it was goes to `which`.
extern "C" int64_t lockstep(int64_t cycles, int seed, uint64_t* which) {
    VerilatedContext context;
    context.randSeed(seed);
    Vaccel top(&context, "accel");
    for (int64_t cycle = 0; cycle < cycles; cycle++) {
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
        if (top.wrong) {
            *which = top.wrong;
            return cycle;
        }
    }
    return -1;
}
