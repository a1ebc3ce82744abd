// SPDX-License-Identifier: BSD-3-Clause
#include "relay/directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

namespace tcpqp::run {
namespace {

constexpr std::string_view kPrefix = "tcpqp-relay.";
constexpr const char* kSocket = "relay";
constexpr const char* kLibrary = "preload.so";
constexpr const char* kSeparators = " :";  // of LD_PRELOAD, ld.so(8)
constexpr int kTries = 100;     // another relay may take a new directory for one that was left
constexpr mode_t kMode = 0711;  // the program can reach it as another user, too; nobody can list it

// Nothing: there is none, it is another user's, or its relay lives.
Fd lock(const std::string& path) noexcept {
    Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat opened {};
    if (!fd || ::fstat(fd.get(), &opened) != 0 || opened.st_uid != ::geteuid() ||
        ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
        return {};
    return fd;
}

// Never what somebody else put there.
void remove(const std::string& path, const Fd& locked) noexcept {
    for (const char* name : {kSocket, kLibrary})
        ::unlinkat(locked.get(), name, 0);
    ::rmdir(path.c_str());
}

void remove_left(const std::filesystem::path& among) noexcept {
    std::error_code unreadable;
    std::filesystem::directory_iterator at(among, unreadable), end;
    for (; !unreadable && at != end; at.increment(unreadable)) {
        const std::string path = at->path().string();
        if (at->path().filename().string().rfind(kPrefix, 0) != 0)
            continue;
        if (const Fd left = lock(path); left)
            remove(path, left);
    }
}

bool is_still_there(const std::string& path, const Fd& fd) noexcept {
    struct stat named {
    }, opened{};
    return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd.get(), &opened) == 0 &&
           named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

}  // namespace

Directory::Directory() {
    const std::filesystem::path among = std::filesystem::temp_directory_path();
    remove_left(among);
    for (int i = 0; i < kTries; i++) {
        path_ = (among / kPrefix).string() + "XXXXXX";
        if (::mkdtemp(path_.data()) == nullptr)
            throw_errno(path_);
        lock_ = lock(path_);
        if (lock_ && is_still_there(path_, lock_)) {
            if (::fchmod(lock_.get(), kMode) != 0)
                throw_errno(path_);
            return;
        }
    }
    throw_errno(path_, EBUSY);
}

Directory::~Directory() { remove(path_, lock_); }

std::string Directory::socket() const { return path_ + "/" + kSocket; }

std::string Directory::preloadable(const std::string& library) const {
    if (library.find_first_of(kSeparators) == std::string::npos)
        return library;
    std::string path = path_ + "/" + kLibrary;
    if (path.find_first_of(kSeparators) != std::string::npos)
        throw_errno(
            "LD_PRELOAD takes no spaces and colons: set TMPDIR to a path without, not " + path_,
            EINVAL);
    if (::symlinkat(library.c_str(), lock_.get(), kLibrary) != 0)
        throw_errno(path);
    return path;
}

}  // namespace tcpqp::run
