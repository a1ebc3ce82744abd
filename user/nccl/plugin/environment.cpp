// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/environment.hpp"

#include <cstdlib>

#include "nccl/plugin/log.hpp"

namespace tcpqp::nccl {

int number_from_environment(const char* name, int least, int most, int usual) noexcept {
    const char* word = std::getenv(name);
    if (word == nullptr || *word == '\0')
        return usual;
    char* end = nullptr;
    const long number = std::strtol(word, &end, 10);
    if (end != word && *end == '\0' && number >= least && number <= most)
        return static_cast<int>(number);
    warn("%s=%s is no number of %d to %d: %d it is", name, word, least, most, usual);
    return usual;
}

}  // namespace tcpqp::nccl
