// SPDX-License-Identifier: BSD-3-Clause
#include "spec.hpp"

#include <charconv>
#include <stdexcept>

namespace nupa::bench {
namespace {

template <class Number>
void parse(std::string_view key, std::string_view value, Number& out) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() ||
        static_cast<Number>(number) != number)
        throw std::invalid_argument(std::string(key) + "=" + std::string(value) + ": not a number");
    out = static_cast<Number>(number);
}

void flag(std::string_view key, std::string_view value, bool& out) {
    uint8_t number = 0;
    parse(key, value, number);
    out = number != 0;
}

void set(Spec& s, std::string_view key, std::string_view value) {
    if (key == "transport")
        s.transport = value;
    else if (key == "mode")
        s.mode = value;
    else if (key == "bytes")
        parse(key, value, s.bytes);
    else if (key == "flows")
        parse(key, value, s.flows);
    else if (key == "messages")
        parse(key, value, s.messages);
    else if (key == "ms")
        parse(key, value, s.ms);
    else if (key == "warm_bytes")
        parse(key, value, s.warm_bytes);
    else if (key == "depth")
        parse(key, value, s.depth);
    else if (key == "batch")
        parse(key, value, s.batch);
    else if (key == "burst")
        parse(key, value, s.burst);
    else if (key == "mtu")
        parse(key, value, s.mtu);
    else if (key == "poll")
        flag(key, value, s.poll);
    else if (key == "calls")
        flag(key, value, s.calls);
    else if (key == "mixed")
        flag(key, value, s.mixed);
    else if (key == "scattered")
        flag(key, value, s.scattered);
    else if (key == "waitall")
        flag(key, value, s.waitall);
    else if (key == "pool")
        flag(key, value, s.pool);
    else if (key == "memory")
        flag(key, value, s.memory);
    else
        throw std::invalid_argument("what is '" + std::string(key) + "'?");
}

void check(const Spec& s) {
    if (s.mode != "stream" && s.mode != "pingpong")
        throw std::invalid_argument("mode is stream or pingpong");
    if (s.bytes == 0 || s.bytes > kMessageMaxBytes)
        throw std::invalid_argument("bytes must be 1 to 64 MiB");
    if (s.flows == 0 || s.flows > kFlowsMax)
        throw std::invalid_argument("too many flows, or none");
    if (s.pingpong() && s.flows != 1)
        throw std::invalid_argument("pingpong has one flow");
    if (s.mixed && (s.pingpong() || s.flows != 1 || s.bytes < kMixedMinBytes))
        throw std::invalid_argument(
            "a mix of lengths is a stream of one flow, up to 128 bytes or more");
}

}  // namespace

Spec parse_spec(std::string_view text) {
    Spec s;
    while (!text.empty()) {
        const size_t end = std::min(text.find(','), text.size());
        const std::string_view word = text.substr(0, end);
        const size_t equals = word.find('=');
        if (equals == std::string_view::npos)
            throw std::invalid_argument("'" + std::string(word) + "' is not key=value");
        set(s, word.substr(0, equals), word.substr(equals + 1));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    check(s);
    return s;
}

std::string to_text(const Spec& s) {
    const auto number = [](const char* key, uint64_t value) {
        return std::string(",") + key + "=" + std::to_string(value);
    };
    return "transport=" + s.transport + ",mode=" + s.mode + number("bytes", s.bytes) +
           number("flows", s.flows) + number("messages", s.messages) + number("ms", s.ms) +
           number("warm_bytes", s.warm_bytes) + number("depth", s.depth) +
           number("batch", s.batch) + number("burst", s.burst) + number("mtu", s.mtu) +
           number("poll", s.poll) + number("calls", s.calls) + number("mixed", s.mixed) +
           number("scattered", s.scattered) + number("memory", s.memory) + number("pool", s.pool) +
           number("waitall", s.waitall);
}

std::string to_json(const Spec& s) {
    return "{\"transport\": \"" + s.transport + "\", \"mode\": \"" + s.mode +
           "\", \"bytes\": " + std::to_string(s.bytes) + ", \"flows\": " + std::to_string(s.flows) +
           ", \"poll\": " + (s.poll ? "true" : "false") + "}";
}

}  // namespace nupa::bench
