// SPDX-License-Identifier: BSD-3-Clause
#include "lengths.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace nupa::bench {
namespace {

constexpr size_t kTable = 4096;
constexpr uint32_t kShortest = 64;
constexpr uint32_t kSeed = 20260113;

// Zipf-like: of the powers of two from kShortest to half of @longest the one of rank r is taken 1/r
// as often as the first; the length is anywhere from it to the next one.
std::vector<uint32_t> mix(uint32_t longest) {
    std::minstd_rand dice(kSeed);  // the same everywhere: its outputs are the standard's
    std::vector<uint32_t> powers, weights;
    for (uint32_t at = kShortest; at <= longest / 2; at *= 2)
        powers.push_back(at);
    constexpr uint32_t kWhole = 1 << 20;
    for (uint32_t rank = 1; rank <= powers.size(); rank++)
        weights.push_back(kWhole / rank);
    const uint32_t all = std::accumulate(weights.begin(), weights.end(), 0u);
    std::vector<uint32_t> table;
    while (table.size() < kTable) {
        uint32_t left = dice() % all;
        size_t rank = 0;
        while (left >= weights[rank])
            left -= weights[rank++];
        table.push_back(powers[rank] + dice() % powers[rank]);
    }
    return table;
}

}  // namespace

Lengths::Lengths(const Spec& spec)
    : table_(spec.mixed ? mix(spec.bytes) : std::vector<uint32_t>{spec.bytes}),
      sum_(std::accumulate(table_.begin(), table_.end(), uint64_t{0})) {}

uint64_t Lengths::total(uint64_t messages) const noexcept {
    const auto rest = static_cast<std::ptrdiff_t>(messages % table_.size());
    return messages / table_.size() * sum_ +
           std::accumulate(table_.begin(), table_.begin() + rest, uint64_t{0});
}

}  // namespace nupa::bench
