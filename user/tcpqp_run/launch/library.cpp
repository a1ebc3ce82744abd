// SPDX-License-Identifier: BSD-3-Clause
#include "launch/library.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string_view>

#include "base/fd.hpp"

namespace tcpqp::run {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNotSaid = " :$";  // LD_PRELOAD is split at two, and expands the third

bool can_be_said(const fs::path& path) {
    return path.native().find_first_of(kNotSaid) == std::string::npos;
}

fs::path there(const char* name) {
    const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
    for (const auto& directory : {here, here / TCPQP_LIBRARY_FROM_BIN})
        if (fs::exists(directory / name))
            return fs::canonical(directory / name);
    throw_errno(name, ENOENT);
}

// What lies in it is loaded into programs: nobody but its owner may write there.
bool is_ours_alone(const fs::path& directory) {
    struct stat s {};
    if (::lstat(directory.c_str(), &s) != 0)
        throw_errno(directory);
    return S_ISDIR(s.st_mode) && s.st_uid == ::geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Nobody else may rename what is ours in it, either.
bool keeps_names(const fs::path& directory) {
    struct stat s {};
    if (::stat(directory.c_str(), &s) != 0)
        throw_errno(directory);
    return (s.st_mode & S_ISVTX) != 0 || (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

fs::path directory_for_links() {
    const char* set = std::getenv("TMPDIR");
    const fs::path top = set != nullptr && *set != '\0' ? set : "/tmp";
    fs::path directory = top / ("tcpqp-run." + std::to_string(::geteuid()));
    if (!top.is_absolute() || !can_be_said(directory))
        throw std::runtime_error("set TMPDIR to a path without spaces, colons and dollar signs");
    // also for those of its programs that become another user
    if (::mkdir(directory.c_str(), 0755) == 0 && ::chmod(directory.c_str(), 0755) != 0)
        throw_errno(directory);
    if (!keeps_names(top) || !is_ours_alone(directory))
        throw std::runtime_error(directory.native() + " is not ours alone");
    return directory;
}

// A link of a name that follows from the target's: it stays, and the next one finds it.
fs::path link_to(const fs::path& library) {
    const std::string name = "preload-" + std::to_string(std::hash<std::string>()(library)) + ".so";
    fs::path link = directory_for_links() / name;
    std::error_code none;
    if (fs::read_symlink(link, none) == library)
        return link;
    const fs::path fresh = link.native() + "." + std::to_string(::getpid());
    fs::create_symlink(library, fresh);
    fs::rename(fresh, link);
    return link;
}

}  // namespace

std::string find_beside(const char* name) { return there(name); }

std::string find_library(const char* name) {
    const fs::path library = there(name);
    return can_be_said(library) ? library : link_to(library);
}

}  // namespace tcpqp::run
