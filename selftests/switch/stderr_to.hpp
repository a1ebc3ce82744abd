// SPDX-License-Identifier: BSD-3-Clause
// Programs that are started meanwhile have another standard error.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace nupa::testing {

class StderrTo {
public:
    explicit StderrTo(int fd) : saved_(::dup(STDERR_FILENO)) { ::dup2(fd, STDERR_FILENO); }
    StderrTo(const StderrTo&) = delete;
    StderrTo& operator=(const StderrTo&) = delete;
    ~StderrTo() {
        ::dup2(saved_, STDERR_FILENO);
        ::close(saved_);
    }

private:
    int saved_;
};

// What they write there while @body runs, line by line.
template <class Body>
std::vector<std::string> stderr_of(Body body) {
    char path[] = "/tmp/nupa-stderr-XXXXXX";
    const int log = ::mkstemp(path);
    {
        const StderrTo to(log);
        body();
    }
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);)
        lines.push_back(line);
    ::close(log);
    ::unlink(path);
    return lines;
}

}  // namespace nupa::testing
