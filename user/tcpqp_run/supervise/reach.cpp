// SPDX-License-Identifier: BSD-3-Clause
#include "supervise/reach.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/fd.hpp"

namespace tcpqp::run {
namespace {

constexpr size_t kHeadersMax = 64, kNoteBytesMax = 4096;
constexpr std::string_view kGo{"Go\0\0", 4};  // the name of the note with a Go program's build ID
constexpr const char* kPathDefault = "/bin:/usr/bin";  // execvp(3)

// A directory may be "executed", too, and execvp() goes on behind it.
bool is_executable(const std::string& file) noexcept {
    struct stat s {};
    return ::stat(file.c_str(), &s) == 0 && S_ISREG(s.st_mode) && ::access(file.c_str(), X_OK) == 0;
}

// Waits for nobody, whatever it is.
Fd open_to_read(const std::string& file) noexcept {
    return Fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

Fd open_program(const std::string& program) {
    if (program.find('/') != std::string::npos)
        return open_to_read(program);
    const char* path = std::getenv("PATH");
    std::string_view rest = path != nullptr ? path : kPathDefault;
    for (;;) {
        const size_t end = rest.find(':');
        const std::string directory(rest.substr(0, end));
        const std::string file = (directory.empty() ? "." : directory) + "/" + program;
        if (is_executable(file))
            return open_to_read(file);
        if (end == std::string_view::npos)
            return {};
        rest.remove_prefix(end + 1);
    }
}

template <typename T>
bool read_at(int fd, uint64_t at, T* to, size_t count) noexcept {
    const auto bytes = static_cast<ssize_t>(count * sizeof(T));
    return ::pread(fd, to, count * sizeof(T), static_cast<off_t>(at)) == bytes;
}

bool is_ours(const ElfW(Ehdr) & header) noexcept {
    return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
           header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB &&
           header.e_machine == EM_X86_64 && header.e_phentsize == sizeof(ElfW(Phdr)) &&
           (header.e_type == ET_EXEC || header.e_type == ET_DYN);
}

// Of the program's notes one has Go's name: behind others, where the C linker put it.
bool is_go(int fd, const ElfW(Phdr) & notes) noexcept {
    std::array<char, kNoteBytesMax> text{};
    const size_t bytes = std::min<size_t>(notes.p_filesz, text.size());
    if (!read_at(fd, notes.p_offset, text.data(), bytes))
        return false;
    const size_t align = notes.p_align == 8 ? 8 : 4;
    ElfW(Nhdr) note{};
    for (size_t at = 0; at + sizeof(note) <= bytes;) {
        std::memcpy(&note, text.data() + at, sizeof(note));
        const std::string_view rest(text.data() + at + sizeof(note), bytes - at - sizeof(note));
        if (note.n_namesz == kGo.size() && rest.starts_with(kGo))
            return true;
        at += sizeof(note);
        for (const size_t part : {size_t{note.n_namesz}, size_t{note.n_descsz}})
            at += (part + align - 1) / align * align;
    }
    return false;
}

bool look(int fd) noexcept {
    ElfW(Ehdr) header{};
    std::array<ElfW(Phdr), kHeadersMax> parts{};
    if (!read_at(fd, 0, &header, 1) || !is_ours(header) || header.e_phnum > parts.size() ||
        !read_at(fd, header.e_phoff, parts.data(), header.e_phnum))
        return false;
    bool has_linker = false;
    for (size_t i = 0; i < header.e_phnum; i++) {
        if (parts[i].p_type == PT_NOTE && is_go(fd, parts[i]))
            return true;
        has_linker = has_linker || parts[i].p_type == PT_INTERP;
    }
    return !has_linker;
}

}  // namespace

bool calls_by_itself(const char* program) noexcept {
    try {
        const Fd fd = open_program(program);
        return fd && look(fd.get());
    } catch (const std::bad_alloc&) {
        return false;
    }
}

}  // namespace tcpqp::run
