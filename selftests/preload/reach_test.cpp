// SPDX-License-Identifier: BSD-3-Clause
// Which programs tcpqp-run supervises: by what their files say, whatever they say.
#include "supervise/reach.hpp"

#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

using tcpqp::run::calls_by_itself;

std::string note(const std::string& owner, uint32_t owner_bytes, uint32_t bytes) {
    const ElfW(Nhdr) header{owner_bytes, bytes, 1};
    std::string text(reinterpret_cast<const char*>(&header), sizeof(header));
    text += owner;
    text.resize(sizeof(header) + (owner.size() + 3) / 4 * 4 +
                (bytes > 4096 ? 0 : (bytes + 3) / 4 * 4));
    return text;
}
const std::string kGnu = note(std::string("GNU\0", 4), 4, 21);
const std::string kGo = note(std::string("Go\0\0", 4), 4, 83);

struct Elf {
    bool linker = true;
    std::string notes = {};
    uint16_t machine = EM_X86_64;
    uint8_t word = ELFCLASS64;

    [[nodiscard]] std::string text() const {
        ElfW(Ehdr) header{};
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = word;
        header.e_ident[EI_DATA] = ELFDATA2LSB;
        header.e_type = ET_DYN;
        header.e_machine = machine;
        header.e_phoff = sizeof(header);
        header.e_phentsize = sizeof(ElfW(Phdr));
        header.e_phnum = 2;
        ElfW(Phdr) parts[2] = {};
        parts[0].p_type = linker ? PT_INTERP : PT_LOAD;
        parts[1].p_type = PT_NOTE;
        parts[1].p_offset = sizeof(header) + sizeof(parts);
        parts[1].p_filesz = notes.size();
        parts[1].p_align = 4;
        std::string all(reinterpret_cast<const char*>(&header), sizeof(header));
        all.append(reinterpret_cast<const char*>(parts), sizeof(parts));
        return all + notes;
    }
};

class Reach : public testing::Test {
protected:
    bool supervised(const std::string& text) {
        std::ofstream(file_) << text;
        return calls_by_itself(file_.c_str());
    }
    void TearDown() override { std::filesystem::remove_all(directory_); }

    std::filesystem::path directory_ = [] {
        std::string name = testing::TempDir() + "reachXXXXXX";
        return std::filesystem::path(::mkdtemp(name.data()));
    }();
    std::filesystem::path file_ = directory_ / "program";
};

TEST_F(Reach, WithoutALinkerOrByGosOwn) {
    EXPECT_FALSE(supervised(Elf{}.text()));
    EXPECT_FALSE(supervised(Elf{.notes = kGnu}.text()));
    EXPECT_TRUE(supervised(Elf{.linker = false}.text()));
    EXPECT_TRUE(supervised(Elf{.notes = kGo}.text()));
    EXPECT_TRUE(supervised(Elf{.notes = kGnu + kGnu + kGo + kGnu}.text()));
}

TEST_F(Reach, NotWhatNoFilterOfOursSees) {
    EXPECT_FALSE(supervised(Elf{.linker = false, .machine = EM_386}.text()));
    EXPECT_FALSE(supervised(Elf{.linker = false, .word = ELFCLASS32}.text()));
    EXPECT_FALSE(supervised("#!/bin/sh\n"));
    EXPECT_FALSE(supervised(""));
}

TEST_F(Reach, NonsenseIsNoProgram) {
    const std::string whole = Elf{.notes = kGnu + kGo}.text();
    for (size_t bytes = 0; bytes < whole.size() - kGo.size(); bytes++)
        EXPECT_FALSE(supervised(whole.substr(0, bytes))) << bytes;
    for (const uint32_t wild : {0u, 0x7fffffffu, 0xffffffffu}) {
        EXPECT_FALSE(supervised(Elf{.notes = note("GNU", wild, wild)}.text()));
        EXPECT_FALSE(supervised(Elf{.notes = note("GNU", 4, wild)}.text()));
    }
    EXPECT_FALSE(supervised(Elf{.notes = std::string(5000, '\0')}.text()));
}

TEST_F(Reach, FoundAsExecvpFindsIt) {
    EXPECT_FALSE(calls_by_itself("no-program-of-this-name"));
    EXPECT_FALSE(calls_by_itself(""));
    EXPECT_FALSE(calls_by_itself("sh"));
    ASSERT_TRUE(supervised(Elf{.linker = false}.text()));
    const char* was = std::getenv("PATH");
    const std::string path = was != nullptr ? was : "";
    ::setenv("PATH", ("/nonexistent:" + directory_.native() + ":" + path).c_str(), 1);
    EXPECT_FALSE(calls_by_itself("program"));  // it may not be executed
    std::filesystem::permissions(file_, std::filesystem::perms::owner_all);
    EXPECT_TRUE(calls_by_itself("program"));
    std::filesystem::create_directories(directory_ / "before" / "program");
    ::setenv("PATH", (directory_.native() + "/before:" + directory_.native()).c_str(), 1);
    EXPECT_TRUE(calls_by_itself("program"));  // not the directory of that name
    ::setenv("PATH", path.c_str(), 1);
}

TEST_F(Reach, WaitsForNobody) {
    ASSERT_EQ(::mkfifo(file_.c_str(), 0700), 0);
    ::alarm(10);
    EXPECT_FALSE(calls_by_itself(file_.c_str()));
    ::alarm(0);
}

}  // namespace
