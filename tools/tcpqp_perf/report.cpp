// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "options.hpp"

namespace perf {
namespace {

std::vector<double> seconds(const std::vector<Sample>& samples) {
    std::vector<double> v;
    v.reserve(samples.size());
    for (const Sample& s : samples)
        v.push_back(s.seconds);
    return v;
}

std::vector<double> half_trips(const std::vector<Sample>& samples) {
    std::vector<double> v;
    for (const Sample& s : samples)
        v.insert(v.end(), s.trips_us.begin(), s.trips_us.end());
    for (double& t : v)
        t /= 2;
    std::sort(v.begin(), v.end());
    return v;
}

double at(const std::vector<double>& sorted, double share) {
    return sorted[std::min(sorted.size() - 1,
                           static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

// A round's time: of latencies the median, which a busy machine does not move.
double typical_time(const Sample& s) {
    return s.trips_us.empty() ? s.seconds : at(half_trips({s}), 0.5);
}

void stream_row(const char* who, const Result& r, const std::vector<Sample>& samples,
                double relative) {
    const std::vector<double> s = seconds(samples);
    const double bytes = static_cast<double>(r.round.messages) * r.round.bytes;
    const double best = *std::min_element(s.begin(), s.end()), typical = median(s);
    std::printf(" %-10u %-14llu %-16.2f   %-18.2f   %-14.6f  %-9s %.2f\n", r.round.bytes,
                static_cast<unsigned long long>(r.round.messages), bytes / best / 1e6,
                bytes / typical / 1e6, static_cast<double>(r.round.messages) / typical / 1e6, who,
                relative);
}

void trip_row(const char* who, const Result& r, const std::vector<Sample>& samples,
              double relative) {
    const std::vector<double> v = half_trips(samples);
    const double mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
    double square = 0;
    for (double t : v)
        square += (t - mean) * (t - mean);
    std::printf(
        " %-8u %-12llu %-13.2f  %-13.2f %-16.2f  %-12.2f %-14.2f  %-22.2f  %-24.2f  %-9s %.2f\n",
        r.round.bytes, static_cast<unsigned long long>(r.round.messages), v.front(), v.back(),
        at(v, 0.5), mean, std::sqrt(square / static_cast<double>(v.size())), at(v, 0.99),
        at(v, 0.999), who, relative);
}

void json_side(const char* name, const std::vector<Sample>& samples) {
    std::printf("\"%s\": {\"seconds\": %.9f", name, median(seconds(samples)));
    std::printf(", \"rounds_s\": [");
    for (const Sample& s : samples)
        std::printf("%s%.9f", &s == samples.data() ? "" : ", ", s.seconds);
    std::printf("]");
    if (!samples.front().trips_us.empty()) {
        const std::vector<double> v = half_trips(samples);
        std::printf(", \"typical_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f", at(v, 0.5),
                    at(v, 0.99), at(v, 0.999));
    }
    std::printf("}, ");
}

}  // namespace

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    const size_t n = v.size();
    return n == 0 ? 0 : (v[n / 2] + v[(n - 1) / 2]) / 2;
}

double speed_to_tcp(const Result& r) {
    std::vector<double> v;
    for (size_t i = 0; i < r.queue.size(); i++)
        v.push_back(typical_time(r.plain[i]) / typical_time(r.queue[i]));
    return median(v);
}

void print_header(Test test) {
    if (test == Test::kLatency)
        std::printf(
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
            "t_stdev[usec]   "
            "99%% percentile[usec]   99.9%% percentile[usec]  engine    to tcp\n");
    else
        std::printf(
            " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]   "
            "engine    to tcp\n");
}

void print_row(const Result& r) {
    const auto row = r.round.test == Test::kLatency ? trip_row : stream_row;
    row("tcp", r, r.plain, 1.0);
    row(tcpqp_engine_name(r.client.engine), r, r.queue, speed_to_tcp(r));
    std::fflush(stdout);
}

void print_json(const std::vector<Result>& results) {
    std::printf("[");
    for (const Result& r : results) {
        std::printf(
            "%s\n{\"test\": \"%s\", \"bytes\": %u, \"messages\": %llu, \"batch\": %u, \"rounds\": "
            "%zu, ",
            &r == results.data() ? "" : ",", name(r.round.test), r.round.bytes,
            static_cast<unsigned long long>(r.round.messages), r.round.batch, r.queue.size());
        json_side("tcp", r.plain);
        json_side("queue_pair", r.queue);
        std::printf(
            "\"speed_to_tcp\": %.4f, \"engine\": \"%s\", \"reason\": \"%s\", "
            "\"server_placed_bytes\": %llu, "
            "\"server_copied_bytes\": %llu, \"client_zerocopy_bytes\": %llu}",
            speed_to_tcp(r), tcpqp_engine_name(r.client.engine), tcpqp_reason_name(r.client.reason),
            static_cast<unsigned long long>(r.server.rx_placed_bytes),
            static_cast<unsigned long long>(r.server.rx_copied_bytes),
            static_cast<unsigned long long>(r.client.tx_zerocopy_bytes));
    }
    std::printf("\n]\n");
}

}  // namespace perf
