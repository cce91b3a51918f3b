// A Verilated board with its chips, whose serial line is the master end of a pseudo-terminal.
//
// board_run() simulates until another thread asks it to stop; everything else may be called while it
// runs. The line is simulated bit by bit. While nothing happens on the line and the core is not
// busy, the simulation sleeps until the host sends something, and advances a little now and then.

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

#include "Vaccel.h"
#include "verilated.h"

namespace {

// Cycles between looks at the pseudo-terminal; a system call each.
constexpr unsigned kSlice = 512;
// Cycles without a byte on the line or a busy core after which the simulation sleeps.
constexpr uint64_t kQuiet = 1 << 16;
constexpr int kNapMilliseconds = 10;
constexpr unsigned kResetCycles = 16;
// In bit times; a byte is ten.
constexpr unsigned kBreakBits = 20;
constexpr unsigned kReady = 1, kBusy = 2;

// Bytes to bits: start bit, eight data bits, stop bit, `divisor` cycles each.
class Sender {
public:
    explicit Sender(unsigned divisor) : divisor(divisor) {}

    bool idle() const { return !bits && at == have; }
    bool wants() const { return at == have; }
    uint8_t* space() { return bytes; }
    size_t room() const { return sizeof bytes; }
    void fill(size_t count) { at = 0, have = count; }
    void line_break() { bits = kBreakBits, word = 1u << (kBreakBits - 1), left = divisor; }

    // The line in this cycle.
    bool step() {
        if (!bits) {
            if (at == have) return true;
            word = bytes[at++] << 1 | 1u << 9;
            bits = 10;
            left = divisor;
        }
        const bool level = word & 1;
        if (!--left) {
            word >>= 1;
            bits--;
            left = divisor;
        }
        return level;
    }

private:
    unsigned divisor;
    uint8_t bytes[256];
    size_t at = 0, have = 0;
    uint32_t word = 0;
    unsigned bits = 0, left = 0;
};

// Bits to bytes, each sampled in its middle.
class Receiver {
public:
    explicit Receiver(unsigned divisor) : divisor(divisor) {}

    bool idle() const { return !bits; }

    void step(bool level, std::string& bytes) {
        if (!bits) {
            if (level) low = false;
            if (level || low) return;
            bits = 10;
            left = divisor / 2;
            word = 0;
        }
        if (left--) return;
        left = divisor - 1;
        word = word >> 1 | level << 9;
        if (--bits) return;
        // Start bit 0, stop bit 1; anything else is noise or a break, of which a serial port makes
        // nothing until the line is idle again.
        low = !(word & 0x200);
        if ((word & 0x201) == 0x200) bytes += static_cast<char>(word >> 1 & 0xff);
    }

private:
    unsigned divisor;
    uint32_t word = 0;
    unsigned bits = 0, left = 0;
    bool low = false;
};

struct Board {
    VerilatedContext context;
    Vaccel* top;
    Sender sender;
    Receiver receiver;
    std::string outbox;
    uint64_t active = 0;
    std::atomic<uint64_t> cycle{0};
    std::atomic<uint32_t> leds{0}, violations{0};
    // The terminal; -1 once it is unplugged.
    std::atomic<int> terminal;
    std::atomic<bool> stop{false}, unplug{false}, button{false}, line_break{false};

    Board(int terminal, unsigned divisor, uint64_t seed, const char* argument)
        : sender(divisor), receiver(divisor), terminal(terminal) {
        const char* arguments[] = {"accel", argument};
        context.commandArgs(*argument ? 2 : 1, arguments);
        // memories, which nothing initialises, start as noise
        context.randReset(2);
        context.randSeed(static_cast<int>(seed & 0x7fffffff) | 1);
        top = new Vaccel(&context, "accel");
        top->rx = 1;
        reset();
    }

    ~Board() {
        hang_up();
        top->final();
        delete top;
    }

    void hang_up() {
        const int open = terminal.exchange(-1);
        if (open >= 0) close(open);
    }

    void reset() {
        top->rst = 1;
        for (unsigned i = 0; i < kResetCycles; i++) step();
        top->rst = 0;
    }

    void step() {
        top->rx = sender.step();
        top->clk = 0;
        top->eval();
        // what surrounds a board's top holds the line high during reset
        receiver.step(top->tx || top->rst, outbox);
        top->clk = 1;
        top->eval();
        cycle.store(cycle.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }

    bool quiet() const {
        return sender.idle() && receiver.idle() && outbox.empty() && !(leds & kBusy) &&
               (leds & kReady) && cycle - active > kQuiet;
    }

    // Moves bytes between the line and the pseudo-terminal.
    void exchange() {
        if (unplug) hang_up();
        if (terminal < 0) {
            outbox.clear();
            return;
        }
        if (quiet()) {
            pollfd events{terminal, POLLIN, 0};
            poll(&events, 1, kNapMilliseconds);
        }
        if (sender.wants()) {
            const ssize_t count = read(terminal, sender.space(), sender.room());
            if (count > 0) sender.fill(count), active = cycle;
        }
        if (!outbox.empty()) {
            // a serial port forgets what nobody reads, too, but only after a while
            const ssize_t count = write(terminal, outbox.data(), outbox.size());
            if (count > 0) outbox.erase(0, count);
            if (outbox.size() > 1 << 20) outbox.clear();
            active = cycle;
        }
    }

    void run() {
        while (!stop) {
            exchange();
            if (button.exchange(false)) reset();
            if (line_break.exchange(false)) sender.line_break();
            for (unsigned i = 0; i < kSlice; i++) step();
            leds = top->leds;
            violations = top->violations;
        }
    }
};

Board* board(void* handle) { return static_cast<Board*>(handle); }

}  // namespace

extern "C" {

// terminal: non-blocking master end, the board's from now on; divisor: cycles of a bit; argument:
// what $value$plusargs() finds, or empty.
void* board_new(int terminal, unsigned divisor, uint64_t seed, const char* argument) {
    return new Board(terminal, divisor, seed, argument);
}

void board_delete(void* handle) { delete board(handle); }

void board_run(void* handle) { board(handle)->run(); }

void board_stop(void* handle) { board(handle)->stop = true; }

// Hang up; board_plugged() says when it is done.
void board_unplug(void* handle) { board(handle)->unplug = true; }

int board_plugged(void* handle) { return board(handle)->terminal >= 0; }

void board_press_reset(void* handle) { board(handle)->button = true; }

void board_line_break(void* handle) { board(handle)->line_break = true; }

uint64_t board_cycles(void* handle) { return board(handle)->cycle; }

uint32_t board_leds(void* handle) { return board(handle)->leds; }

// Rules of the SDRAM broken so far.
uint32_t board_violations(void* handle) { return board(handle)->violations; }

// Number and time (fs) of the first; not while board_run() runs.
uint32_t board_first_rule(void* handle) { return board(handle)->top->first_rule; }

uint64_t board_first_time(void* handle) { return board(handle)->top->first_time; }
}
