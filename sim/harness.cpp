// The Verilated core with its memory, as a C library: one object per device, no global state.
//
// Memory behind the AXI4 port: requests of each direction are served in order, several may be
// outstanding. A read's first beat is due `latency_cycles` after its address was taken, a write's
// response as long after its last beat. Reads and writes share one budget of `bytes_per_cycle`, as
// one DRAM does; when both want it they alternate. Stalls hold back any channel at random, but never
// withdraw a valid that was shown.
//
// The memory is as unkind as AXI allows: a read sees what was written when its address was taken,
// a write is seen from its response on. A program that misses a dependency therefore fails here.
//
// BUS_BYTES comes from the command line of the build.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "Vaccel.h"
#include "verilated.h"

namespace {

constexpr unsigned kBus = BUS_BYTES;
constexpr unsigned kOutstanding = 64;
constexpr unsigned kPage = 4096;
constexpr unsigned kUnits = 4;
constexpr int kOkay = 0, kSlverr = 2, kDecerr = 3;

struct MemoryModel {
    uint32_t latency_cycles;
    uint32_t bytes_per_cycle;
    uint32_t stall_per_65536;
    uint32_t seed;
    // Bytes from error_low to error_high - 1 answer SLVERR.
    uint64_t error_low;
    uint64_t error_high;
};

struct Read {
    uint64_t address;
    uint64_t due;
    uint32_t beats;
    uint32_t sent = 0;
    std::vector<uint8_t> data;
};

struct Write {
    uint64_t address;
    uint32_t beats;
    std::vector<uint8_t> data;
    std::vector<uint64_t> strobes;
    uint64_t due = 0;
    int response = kOkay;
};

// What a master showed and was not taken must stand still.
struct Held {
    bool waiting = false;
    uint64_t what = 0;
    bool moved(bool valid, bool ready, uint64_t now) {
        bool bad = waiting && (!valid || now != what);
        waiting = valid && !ready;
        what = now;
        return bad;
    }
};

template <class Port>
uint64_t low_bits(const Port& port) {
    uint64_t value = 0;
    memcpy(&value, &port, sizeof(Port) < 8 ? sizeof(Port) : 8);
    return value;
}

// What Verilator calls for every word that nothing initialises. Its own functions give all words of
// a memory the same value; the linker puts these in their place (--wrap).
thread_local VlRNG* noise = nullptr;

uint64_t next_noise() { return noise ? noise->rand64() : 0; }

struct Device {
    VerilatedContext context;
    Vaccel* top = nullptr;
    MemoryModel model{64, 8, 0, 1, 0, 0};
    std::vector<uint8_t> memory;
    uint64_t base = 0;
    uint64_t cycle = 0;
    uint64_t run_start = 0;
    uint64_t credit = 0;
    uint64_t random = 1;
    bool write_turn = false;
    bool b_shown = false;
    std::deque<Read> reads;
    // Writes whose data are awaited, then writes whose response is due.
    std::deque<Write> writes;
    std::deque<Write> answers;
    Held held_ar, held_aw, held_w;
    std::vector<uint64_t> started[kUnits], retired[kUnits];
    std::string violation;

    explicit Device(int64_t seed) {
        VlRNG generator{static_cast<uint64_t>(seed)};
        noise = seed < 0 ? nullptr : &generator;
        top = new Vaccel(&context, "accel");
        quiet();
        top->rst = 1;
        for (int i = 0; i < 4; i++) tick();
        noise = nullptr;
        top->rst = 0;
        cycle = 0;
    }

    ~Device() {
        top->final();
        delete top;
    }

    void quiet() {
        top->clk = 0;
        top->m_axi_arready = 0;
        top->m_axi_awready = 0;
        top->m_axi_wready = 0;
        top->m_axi_rvalid = 0;
        top->m_axi_bvalid = 0;
        top->s_axil_arvalid = 0;
        top->s_axil_awvalid = 0;
        top->s_axil_wvalid = 0;
        top->s_axil_bready = 0;
        top->s_axil_rready = 0;
        top->s_axil_wstrb = 0xf;
    }

    void tick() {
        top->clk = 0;
        top->eval();
        top->clk = 1;
        top->eval();
    }

    bool stall() {
        if (!model.stall_per_65536) return false;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return (random >> 32 & 0xffff) < model.stall_per_65536;
    }

    void violate(const char* rule, uint64_t value) {
        if (!violation.empty()) return;
        char text[160];
        snprintf(text, sizeof text, "%s (0x%llx) in cycle %llu", rule,
                 static_cast<unsigned long long>(value), static_cast<unsigned long long>(cycle));
        violation = text;
    }

    int response_at(uint64_t address) const {
        if (address < base || address - base + kBus > memory.size()) return kDecerr;
        if (address + kBus > model.error_low && address < model.error_high) return kSlverr;
        return kOkay;
    }

    void check_burst(uint64_t address, uint32_t beats, uint32_t size, uint32_t burst) {
        if ((1u << size) != kBus) violate("AxSIZE is not the bus width", size);
        if (burst != 1) violate("AxBURST is not INCR", burst);
        if (address % kBus) violate("burst address is not aligned", address);
        if (address / kPage != (address + beats * kBus - 1) / kPage)
            violate("burst crosses a 4 KiB boundary", address);
    }

    void take_read() {
        uint64_t address = top->m_axi_araddr;
        uint32_t beats = top->m_axi_arlen + 1u;
        check_burst(address, beats, top->m_axi_arsize, top->m_axi_arburst);
        Read read{address, cycle + model.latency_cycles, beats};
        read.data.resize(beats * kBus, 0xa5);
        if (address >= base && address - base < memory.size()) {
            uint64_t have = memory.size() - (address - base);
            uint64_t want = read.data.size();
            memcpy(read.data.data(), memory.data() + (address - base), want < have ? want : have);
        }
        reads.push_back(std::move(read));
    }

    void take_write() {
        uint64_t address = top->m_axi_awaddr;
        uint32_t beats = top->m_axi_awlen + 1u;
        check_burst(address, beats, top->m_axi_awsize, top->m_axi_awburst);
        writes.push_back(Write{address, beats, {}, {}});
    }

    void take_data() {
        Write& write = writes.front();
        uint64_t address = write.address + write.strobes.size() * kBus;
        const uint8_t* data = reinterpret_cast<const uint8_t*>(&top->m_axi_wdata);
        write.data.insert(write.data.end(), data, data + kBus);
        write.strobes.push_back(low_bits(top->m_axi_wstrb));
        int response = response_at(address);
        if (write.response == kOkay) write.response = response;
        bool last = write.strobes.size() == write.beats;
        if (last != static_cast<bool>(top->m_axi_wlast)) violate("WLAST is wrong", address);
        if (last) {
            write.due = cycle + model.latency_cycles;
            answers.push_back(std::move(write));
            writes.pop_front();
        }
    }

    void commit(const Write& write) {
        for (uint32_t beat = 0; beat < write.beats; beat++) {
            uint64_t address = write.address + beat * kBus;
            if (response_at(address) != kOkay) continue;
            uint8_t* target = memory.data() + (address - base);
            const uint8_t* data = write.data.data() + beat * kBus;
            for (unsigned byte = 0; byte < kBus; byte++)
                if (write.strobes[beat] >> byte & 1) target[byte] = data[byte];
        }
    }

    // Whether a beat of kBus bytes fits the budget in this cycle.
    bool pay() {
        if (credit < kBus) return false;
        credit -= kBus;
        return true;
    }

    void show_read() {
        if (top->m_axi_rvalid || reads.empty() || reads.front().due > cycle) return;
        if (stall() || !pay()) return;
        Read& read = reads.front();
        memcpy(&top->m_axi_rdata, read.data.data() + read.sent * kBus, kBus);
        top->m_axi_rresp = response_at(read.address + read.sent * kBus);
        top->m_axi_rlast = ++read.sent == read.beats;
        top->m_axi_rvalid = 1;
        write_turn = true;
        if (top->m_axi_rlast) reads.pop_front();
    }

    void show_write_ready() {
        // W is taken only when valid is there already, so that the budget is spent on real beats.
        if (top->m_axi_wvalid && !writes.empty() && !stall() && pay()) {
            top->m_axi_wready = 1;
            write_turn = false;
        }
    }

    // The slave's side of one cycle: inputs that follow from the state, then the clock edge.
    void step() {
        credit += model.bytes_per_cycle;
        // Less than two beats: a read and a write never share a cycle the budget does not hold.
        uint64_t most = model.bytes_per_cycle + kBus - 1;
        if (credit > most) credit = most;
        top->m_axi_arready = reads.size() < kOutstanding && !stall();
        top->m_axi_awready = writes.size() + answers.size() < kOutstanding && !stall();
        top->m_axi_wready = 0;
        if (write_turn) {
            show_write_ready();
            show_read();
        } else {
            show_read();
            show_write_ready();
        }
        if (!b_shown && !answers.empty() && answers.front().due <= cycle && !stall()) {
            commit(answers.front());
            top->m_axi_bresp = answers.front().response;
            top->m_axi_bvalid = 1;
            b_shown = true;
        }
        top->clk = 0;
        top->eval();
        const bool ar = top->m_axi_arvalid && top->m_axi_arready;
        const bool aw = top->m_axi_awvalid && top->m_axi_awready;
        const bool w = top->m_axi_wvalid && top->m_axi_wready;
        const bool r = top->m_axi_rvalid && top->m_axi_rready;
        const bool b = top->m_axi_bvalid && top->m_axi_bready;
        if (held_ar.moved(top->m_axi_arvalid, top->m_axi_arready,
                          top->m_axi_araddr | static_cast<uint64_t>(top->m_axi_arlen) << 40))
            violate("AR changed before it was taken", top->m_axi_araddr);
        if (held_aw.moved(top->m_axi_awvalid, top->m_axi_awready,
                          top->m_axi_awaddr | static_cast<uint64_t>(top->m_axi_awlen) << 40))
            violate("AW changed before it was taken", top->m_axi_awaddr);
        if (held_w.moved(top->m_axi_wvalid, top->m_axi_wready, low_bits(top->m_axi_wdata)))
            violate("W changed before it was taken", low_bits(top->m_axi_wdata));
        if (ar) take_read();
        if (aw) take_write();
        if (w) take_data();
        note_pulses();
        top->clk = 1;
        top->eval();
        cycle++;
        if (r) {
            top->m_axi_rvalid = 0;
            if (model.stall_per_65536) memset(&top->m_axi_rdata, 0x5a, kBus);
        }
        if (b) {
            top->m_axi_bvalid = 0;
            b_shown = false;
            answers.pop_front();
        }
    }

    void note_pulses() {
        const unsigned start = top->load_start | top->gemm_start << 1 | top->alu_start << 2 |
                               top->store_start << 3;
        const unsigned retire = top->load_retire | top->gemm_retire << 1 | top->alu_retire << 2 |
                                top->store_retire << 3;
        if (!(start | retire)) return;
        for (unsigned unit = 0; unit < kUnits; unit++) {
            if (start >> unit & 1) started[unit].push_back(cycle - run_start);
            if (retire >> unit & 1) retired[unit].push_back(cycle - run_start);
        }
    }

    // AXI4-Lite accesses; false if the core does not answer within the limit.
    bool write_register(uint32_t offset, uint32_t value, uint32_t* response) {
        top->s_axil_awaddr = offset;
        top->s_axil_wdata = value;
        top->s_axil_awvalid = 1;
        top->s_axil_wvalid = 1;
        top->s_axil_bready = 1;
        bool done = false;
        for (int limit = 0; limit < 1000 && !done; limit++) {
            top->clk = 0;
            top->eval();
            const bool aw = top->s_axil_awvalid && top->s_axil_awready;
            const bool w = top->s_axil_wvalid && top->s_axil_wready;
            done = top->s_axil_bvalid;
            *response = top->s_axil_bresp;
            step();
            if (aw) top->s_axil_awvalid = 0;
            if (w) top->s_axil_wvalid = 0;
        }
        top->s_axil_bready = 0;
        return done;
    }

    bool read_register(uint32_t offset, uint32_t* value, uint32_t* response) {
        top->s_axil_araddr = offset;
        top->s_axil_arvalid = 1;
        top->s_axil_rready = 1;
        bool done = false;
        for (int limit = 0; limit < 1000 && !done; limit++) {
            top->clk = 0;
            top->eval();
            const bool ar = top->s_axil_arvalid && top->s_axil_arready;
            done = top->s_axil_rvalid;
            *value = top->s_axil_rdata;
            *response = top->s_axil_rresp;
            step();
            if (ar) top->s_axil_arvalid = 0;
        }
        top->s_axil_rready = 0;
        return done;
    }
};

Device* device(void* handle) { return static_cast<Device*>(handle); }

}  // namespace

extern "C" {

IData __wrap__Z22VL_SCOPED_RAND_RESET_Iimm(int bits, uint64_t, uint64_t) {
    return next_noise() & VL_MASK_I(bits);
}

QData __wrap__Z22VL_SCOPED_RAND_RESET_Qimm(int bits, uint64_t, uint64_t) {
    return next_noise() & VL_MASK_Q(bits);
}

WDataOutP __wrap__Z22VL_SCOPED_RAND_RESET_WiPjmm(int bits, WDataOutP words, uint64_t, uint64_t) {
    const int last = VL_WORDS_I(bits) - 1;
    for (int i = 0; i < last; ++i) words[i] = next_noise();
    words[last] = next_noise() & VL_MASK_E(bits);
    return words;
}

// seed < 0: registers and memories start as zero; else as noise from the seed.
void* accel_new(int64_t seed) { return new Device(seed); }

void accel_delete(void* handle) { delete device(handle); }

void accel_set_model(void* handle, const MemoryModel* model) {
    Device* d = device(handle);
    d->model = *model;
    d->random = 0x9e3779b97f4a7c15ull * (model->seed + 1ull) | 1;
}

// The memory's bytes; the pointer is good until the next call.
uint8_t* accel_memory(void* handle, uint64_t base, uint64_t nbytes) {
    Device* d = device(handle);
    d->base = base;
    d->memory.resize(nbytes);
    return d->memory.data();
}

int accel_write_register(void* handle, uint32_t offset, uint32_t value, uint32_t* response) {
    return device(handle)->write_register(offset, value, response);
}

int accel_read_register(void* handle, uint32_t offset, uint32_t* value, uint32_t* response) {
    return device(handle)->read_register(offset, value, response);
}

// Forget the traces; cycles count from here.
void accel_mark(void* handle) {
    Device* d = device(handle);
    d->run_start = d->cycle;
    for (unsigned unit = 0; unit < kUnits; unit++) {
        d->started[unit].clear();
        d->retired[unit].clear();
    }
}

// Run until the interrupt, a rule of AXI is broken, or max_cycles have passed; cycles run.
uint64_t accel_run(void* handle, uint64_t max_cycles) {
    Device* d = device(handle);
    const uint64_t first = d->cycle;
    while (d->cycle - first < max_cycles && !d->top->irq && d->violation.empty()) d->step();
    return d->cycle - first;
}

// Run exactly so many cycles.
void accel_step(void* handle, uint64_t cycles) {
    while (cycles--) device(handle)->step();
}

uint64_t accel_trace(void* handle, unsigned unit, int retired, const uint64_t** cycles) {
    const auto& trace = retired ? device(handle)->retired[unit] : device(handle)->started[unit];
    *cycles = trace.data();
    return trace.size();
}

// The first broken rule of AXI, or an empty text.
const char* accel_violation(void* handle) { return device(handle)->violation.c_str(); }

// Requests the core has issued that the memory has not answered in full.
unsigned accel_outstanding(void* handle) {
    const Device* d = device(handle);
    return d->reads.size() + d->writes.size() + d->answers.size();
}
}
