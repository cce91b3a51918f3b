// The board's end of the link, Verilated, with a UART on the host's side of the line, a memory and
// a block of registers. Bytes go in, bytes come out.
//
// BUS_BYTES comes from the command line of the build.

#include <cstdint>
#include <cstring>
#include <vector>

#include "Vaccel.h"
#include "verilated.h"

namespace {

constexpr unsigned kResetCycles = 4;
constexpr unsigned kRegisterBytes = 512;
constexpr unsigned kSlaveError = 2;
// A register whose writes are counted.
constexpr unsigned kBell = 0x40;

struct Random {
    uint64_t state;
    uint32_t next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return static_cast<uint32_t>(state >> 33);
    }
    bool chance(uint32_t per_65536) { return (next() & 0xffff) < per_65536; }
};

// What a bus slave has been asked and how long it still takes to answer.
struct Slave {
    bool have_address = false, have_data = false, have_read = false;
    uint64_t address = 0, read_address = 0;
    unsigned wait = 0, read_wait = 0;
    uint8_t data[BUS_BYTES];
    uint32_t strobe = 0;
};

}  // namespace

struct Bench {
    VerilatedContext context;
    Vaccel* top;
    Random random;
    std::vector<uint8_t> memory, registers;
    Slave memory_slave, register_slave;
    uint32_t latency = 4, stall = 0, flip = 0;
    uint64_t refused_low = 0, refused_high = 0;
    uint64_t cycles = 0, accesses = 0, flips = 0, rings = 0;

    Bench(uint64_t bytes, uint64_t seed)
        : random{seed * 2 + 1}, memory(bytes), registers(kRegisterBytes) {
        context.randReset(2);
        context.randSeed(static_cast<int>(seed & 0x7fffffff) | 1);
        top = new Vaccel(&context, "accel");
        top->host_send_valid = 0;
        top->host_received_ready = 1;
        top->flip = 0;
        top->core_busy = 0;
        reset();
    }

    ~Bench() {
        top->final();
        delete top;
    }

    void reset() {
        memory_slave = Slave();
        register_slave = Slave();
        quiet_bus();
        top->rst = 1;
        for (unsigned i = 0; i < kResetCycles; i++) clock();
        top->rst = 0;
    }

    void quiet_bus() {
        top->memory_awready = top->memory_wready = top->memory_arready = 0;
        top->memory_bvalid = top->memory_rvalid = 0;
        top->registers_awready = top->registers_wready = top->registers_arready = 0;
        top->registers_bvalid = top->registers_rvalid = 0;
    }

    void clock() {
        top->clk = 0;
        top->eval();
        top->clk = 1;
        top->eval();
        cycles++;
    }

    bool refused(uint64_t address, uint64_t size) const {
        return address >= size || (address >= refused_low && address < refused_high);
    }

// The two buses differ in names and width alone.
#define SERVE(NAME, SLAVE, STORE, WIDTH)                                                        \
    void serve_##NAME() {                                                                       \
        Slave& s = SLAVE;                                                                       \
        const bool aw = top->NAME##_awvalid && top->NAME##_awready;                             \
        const bool w = top->NAME##_wvalid && top->NAME##_wready;                                \
        const bool ar = top->NAME##_arvalid && top->NAME##_arready;                             \
        const bool b = top->NAME##_bvalid && top->NAME##_bready;                                \
        const bool r = top->NAME##_rvalid && top->NAME##_rready;                                \
        const uint64_t awaddr = top->NAME##_awaddr, araddr = top->NAME##_araddr;                \
        uint8_t data[WIDTH];                                                                    \
        memcpy(data, &top->NAME##_wdata, WIDTH);                                                \
        const uint32_t strobe = top->NAME##_wstrb;                                              \
        clock();                                                                                \
        accesses += b + r;                                                                      \
        if (aw) s.have_address = true, s.address = awaddr, s.wait = latency;                    \
        if (w) s.have_data = true, memcpy(s.data, data, WIDTH), s.strobe = strobe;              \
        if (ar) s.have_read = true, s.read_address = araddr, s.read_wait = latency;             \
        if (b) top->NAME##_bvalid = 0;                                                          \
        if (r) top->NAME##_rvalid = 0;                                                          \
        if (s.have_address && s.have_data && !s.wait-- && !top->NAME##_bvalid) {                \
            unsigned response = 0;                                                              \
            for (unsigned lane = 0; lane < WIDTH; lane++) {                                     \
                if (!(s.strobe >> lane & 1)) continue;                                          \
                if (refused(s.address + lane, STORE.size())) response = kSlaveError;            \
                else STORE[s.address + lane] = s.data[lane];                                    \
                rings += &STORE == &registers && s.address + lane == kBell;                     \
            }                                                                                   \
            top->NAME##_bresp = response;                                                       \
            top->NAME##_bvalid = 1;                                                             \
            s.have_address = s.have_data = false;                                               \
        }                                                                                       \
        if (s.have_read && !s.read_wait--) {                                                    \
            uint8_t out[WIDTH];                                                                 \
            unsigned response = 0;                                                              \
            for (unsigned lane = 0; lane < WIDTH; lane++) {                                     \
                const bool bad = refused(s.read_address + lane, STORE.size());                  \
                if (bad) response = kSlaveError;                                                \
                out[lane] = bad ? 0 : STORE[s.read_address + lane];                             \
            }                                                                                   \
            memcpy(&top->NAME##_rdata, out, WIDTH);                                             \
            top->NAME##_rresp = response;                                                       \
            top->NAME##_rvalid = 1;                                                             \
            s.have_read = false;                                                                \
        }                                                                                       \
        top->NAME##_awready = !s.have_address && !random.chance(stall);                         \
        top->NAME##_wready = !s.have_data && !random.chance(stall);                             \
        top->NAME##_arready = !s.have_read && !top->NAME##_rvalid && !random.chance(stall);     \
    }
    SERVE(memory, memory_slave, memory, BUS_BYTES)
    // One clock serves both: the link never uses the two at once.
    SERVE(registers, register_slave, registers, 4)
#undef SERVE

    // Send `data`, then go on until nothing has happened for `quiet` cycles.
    uint64_t run(const uint8_t* data, uint64_t size, uint8_t* out, uint64_t room, uint64_t quiet) {
        uint64_t sent = 0, got = 0, still = 0;
        while (still < quiet) {
            top->host_send_valid = sent < size;
            top->host_send_payload = sent < size ? data[sent] : 0;
            top->flip = random.chance(flip);
            flips += top->flip;
            top->clk = 0;
            top->eval();
            const bool sending = top->host_send_valid && top->host_send_ready;
            const bool receiving = top->host_received_valid;
            if (receiving && got < room) out[got++] = top->host_received_payload;
            const uint64_t before = accesses;
            if (top->registers_awvalid || top->registers_wvalid || top->registers_arvalid ||
                register_busy())
                serve_registers();
            else
                serve_memory();
            sent += sending;
            still = sending || receiving || accesses != before || sent < size ? 0 : still + 1;
        }
        top->host_send_valid = 0;
        return got;
    }

    bool register_busy() const {
        return register_slave.have_address || register_slave.have_data ||
               register_slave.have_read || top->registers_bvalid || top->registers_rvalid;
    }
};

extern "C" {

Bench* link_new(uint64_t bytes, uint64_t seed) { return new Bench(bytes, seed); }
void link_delete(Bench* b) { delete b; }
void link_reset(Bench* b) { b->reset(); }
uint8_t* link_memory(Bench* b) { return b->memory.data(); }
uint8_t* link_registers(Bench* b) { return b->registers.data(); }
void link_bus(Bench* b, uint32_t latency, uint32_t stall, uint64_t low, uint64_t high) {
    b->latency = latency, b->stall = stall, b->refused_low = low, b->refused_high = high;
}
void link_busy(Bench* b, int busy) { b->top->core_busy = busy; }
void link_flip(Bench* b, uint32_t per_65536) { b->flip = per_65536; }
int link_mlperf(Bench* b) { return b->top->mlperf; }
uint64_t link_cycles(Bench* b) { return b->cycles; }
uint64_t link_accesses(Bench* b) { return b->accesses; }
uint64_t link_rings(Bench* b) { return b->rings; }
uint64_t link_flips(Bench* b) { return b->flips; }
uint64_t link_run(Bench* b, const uint8_t* in, uint64_t size, uint8_t* out, uint64_t room,
                  uint64_t quiet) {
    return b->run(in, size, out, room, quiet);
}

}  // extern "C"
