// SPDX-License-Identifier: BSD-3-Clause
// Memory of a host's accelerators: where the host says it lies, and never another host's.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "stderr_to.hpp"
#include "tcp_qp/nupa_accel_hw.h"
#include "two_ports.hpp"

namespace nupa::testing {
namespace {

constexpr uint64_t kFileBytes = 8 << 20;
constexpr uint64_t kMemoryBytes = kFileBytes - NUPA_ACCEL_CONTROL_BYTES;
constexpr uint64_t kHbmBase = 0x4000000000;

// The file of an accelerator, with nobody behind it.
class Hbm {
public:
    Hbm(const std::string& path, uint64_t id, uint64_t bytes = kFileBytes) {
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) < 0)
            throw std::runtime_error("make " + path);
        at_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ::close(fd);
        if (at_ == MAP_FAILED)
            throw std::runtime_error("map " + path);
        bytes_ = bytes;
        regs()->magic = NUPA_ACCEL_MAGIC;
        regs()->id = id;
    }
    Hbm(const Hbm&) = delete;
    Hbm& operator=(const Hbm&) = delete;
    ~Hbm() { ::munmap(at_, bytes_); }

    nupa_accel_regs* regs() { return static_cast<nupa_accel_regs*>(at_); }
    uint8_t* memory() { return static_cast<uint8_t*>(at_) + NUPA_ACCEL_CONTROL_BYTES; }

private:
    void* at_ = nullptr;
    uint64_t bytes_ = 0;
};

// Two ports, each with an accelerator of its own, beside a third without.
struct Windows : ::testing::Test {
    Windows() {
        for (const char* name : {"a0", "a1"}) {
            ports.push_back(std::make_unique<FakePort>(directory + name + ".socket",
                                                       directory + name + ".ram", 64 << 20));
            ports.back()->enable();
            ports.back()->create_queues(0);
            ports.back()->set_rx_mode(kModeAll, ports.back()->mac(), 9000);
        }
    }
    ~Windows() override { std::filesystem::remove_all(directory); }
    [[nodiscard]] std::vector<std::string> port(const std::string& name) const {
        const std::string path = directory + name;
        return {"--port", "name=" + name + ",socket=" + path + ".socket,ram=" + path +
                              ".ram,hbm=" + path + ".hbm"};
    }
    [[nodiscard]] std::vector<std::string> arguments() const {
        std::vector<std::string> all = port("a0"), more = port("a1");
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }

    const std::string directory = make_directory() + "/";
    Hbm hbm0{directory + "a0.hbm", 100}, hbm1{directory + "a1.hbm", 101};
    DaemonProcess daemon{1, arguments()};
    std::vector<std::unique_ptr<FakePort>> ports;
};

nupa_admin_cmd set(uint64_t memory, uint64_t base = kHbmBase, uint64_t bytes = kMemoryBytes,
                   uint32_t number = 0) {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_WINDOW_SET;
    cmd.id = number;
    cmd.window = {.base = base, .bytes = bytes, .memory = memory};
    return cmd;
}

nupa_admin_cmd clear(uint32_t number = 0) {
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_WINDOW_CLEAR;
    cmd.id = number;
    return cmd;
}

// A region of one page of the window.
nupa_admin_cmd region(FakePort& port, uint32_t key, uint64_t page) {
    const uint64_t table = port.alloc(kPageBytes);
    *port.at<uint64_t>(table) = page;
    nupa_admin_cmd cmd{};
    cmd.op = NUPA_ADMIN_MR_REG;
    cmd.id = key;
    cmd.mr.iova = 0;
    cmd.mr.bytes = kPageBytes;
    cmd.mr.table_addr = table;
    cmd.mr.pages = 1;
    cmd.mr.page_shift = 12;
    return cmd;
}

TEST_F(Windows, AHostReachesItsOwnMemoryAndNoOther) {
    FakePort& port = *ports[0];
    EXPECT_EQ(port.admin_status(region(port, 1, kHbmBase)), NUPA_E_ADDRESS) << "before the window";
    EXPECT_EQ(port.admin_status(set(101)), NUPA_E_NOENT) << "the neighbour's";
    EXPECT_EQ(port.admin_status(set(0)), NUPA_E_NOENT);
    EXPECT_EQ(port.admin_status(region(port, 1, kHbmBase)), NUPA_E_ADDRESS);
    EXPECT_EQ(port.admin_status(set(100)), NUPA_OK);
    EXPECT_EQ(port.admin_status(region(port, 1, kHbmBase)), NUPA_OK);
    EXPECT_EQ(port.admin_status(region(port, 2, kHbmBase + kMemoryBytes)), NUPA_E_ADDRESS)
        << "behind its end";
    EXPECT_EQ(port.admin_status(region(port, 2, kHbmBase - kPageBytes)), NUPA_E_ADDRESS)
        << "its registers";
    EXPECT_EQ(ports[1]->admin_status(region(*ports[1], 1, kHbmBase)), NUPA_E_ADDRESS)
        << "another host has no window there";
}

TEST_F(Windows, WrongOnesAreRefused) {
    FakePort& port = *ports[0];
    EXPECT_EQ(port.admin_status(set(100, kHbmBase + 1)), NUPA_E_INVALID);
    EXPECT_EQ(port.admin_status(set(100, kHbmBase, kFileBytes)), NUPA_E_INVALID);
    EXPECT_EQ(port.admin_status(set(100, kHbmBase, kPageBytes)), NUPA_E_INVALID);
    EXPECT_EQ(port.admin_status(set(100, kHbmBase, kMemoryBytes, NUPA_WINDOWS_MAX)),
              NUPA_E_INVALID);
    EXPECT_EQ(port.admin_status(set(100, kPageBytes)), NUPA_E_ADDRESS) << "over RAM";
    EXPECT_EQ(port.admin_status(set(100, ~uint64_t{4095})), NUPA_E_ADDRESS) << "beyond the end";
    EXPECT_EQ(port.admin_status(clear()), NUPA_E_NOENT);
    EXPECT_EQ(port.admin_status(set(100)), NUPA_OK);
    EXPECT_EQ(port.admin_status(set(100)), NUPA_E_EXISTS);
    EXPECT_EQ(port.admin_status(set(100, kHbmBase + kPageBytes, kMemoryBytes, 1)), NUPA_E_ADDRESS)
        << "over another window";
    EXPECT_EQ(port.admin_status(clear()), NUPA_OK);
    EXPECT_EQ(port.admin_status(region(port, 1, kHbmBase)), NUPA_E_ADDRESS) << "taken back";
    EXPECT_EQ(port.admin_status(set(100)), NUPA_OK);
}

TEST_F(Windows, AResetClearsThem) {
    FakePort& port = *ports[0];
    port.must(set(100));
    port.disable();
    port.enable();
    EXPECT_EQ(port.admin_status(region(port, 1, kHbmBase)), NUPA_E_ADDRESS);
    EXPECT_EQ(port.admin_status(set(100)), NUPA_OK);
}

// A host may rename its memory.  It gains nothing: the name is looked for in its own files.
TEST_F(Windows, ANewNameIsNoOtherMemory) {
    FakePort& port = *ports[0];
    hbm0.regs()->id = 101;
    port.must(set(101));
    port.must(region(port, 1, kHbmBase));
    hbm0.regs()->magic = 0;
    EXPECT_EQ(port.admin_status(set(102, kHbmBase * 2, kMemoryBytes, 1)), NUPA_E_NOENT);
}

// What a host asks for again and again does not fill the log.
struct WindowsOfAHost : Windows {
    void TestBody() override {
        std::filesystem::remove(directory + "a0.hbm");
        for (int i = 0; i < 100; i++)
            EXPECT_EQ(ports[0]->admin_status(set(100)), NUPA_E_NOENT);
    }
};

TEST(WindowsLog, IsNotFilledByAHost) {
    const auto told = std::ranges::count_if(
        stderr_of([] { WindowsOfAHost().TestBody(); }),
        [](const std::string& line) { return line.find("a0.hbm") != std::string::npos; });
    EXPECT_GT(told, 0);
    EXPECT_LT(told, 20);
}

// Payload leaves from the accelerator's memory as from RAM.
TEST_F(Windows, TransmitGathersFromIt) {
    FakePort& port = *ports[0];
    port.must(set(100));
    TcpFrame f;
    f.src = port.mac();
    f.dst = ports[1]->mac();
    f.saddr = 0x0a000001, f.daddr = 0x0a000002;
    f.payload = pattern(1000, 5);
    const Bytes frame = build_tcp(f);
    const size_t headers = frame.size() - f.payload.size();
    std::memcpy(hbm0.memory() + 4096, f.payload.data(), f.payload.size());
    TxOptions options;
    options.split_at = headers;
    port.stage(0, frame, options);
    // the last entry is the payload's buffer
    const auto& ring = port.tx(0);
    auto* entry = port.at<nupa_tx_entry>(ring.ring) + ((ring.prod - 1) & (ring.entries - 1));
    ASSERT_EQ(entry->buf.bytes, f.payload.size());
    std::memset(port.ram(entry->buf.addr), 0, f.payload.size());
    entry->buf.addr = kHbmBase + 4096;
    port.publish(0);
    const auto got = parse_tcp(ports[1]->receive(0).whole());
    ASSERT_TRUE(got);
    EXPECT_EQ(got->payload, f.payload);
}

}  // namespace
}  // namespace nupa::testing
