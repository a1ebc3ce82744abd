// SPDX-License-Identifier: BSD-3-Clause
#include "transfer.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <tuple>

#include "stop.hpp"

namespace ncqp {
namespace {

// Opened before the peer hears from us: a path that can't be written is told first.
Status open_json(const std::string& path, tcpqp::Fd& fd) {
    if (path.empty())
        return {};
    fd.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd)
        return {};
    return Status::failure(fmt::format("--json {}: {}", path, std::strerror(errno)));
}

Status write_json(const tcpqp::Fd& fd, const std::string& text) {
    if (!fd || ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()))
        return {};
    return Status::failure(fmt::format("--json: {}", std::strerror(errno)));
}

bool is_tcp(const Job& job) noexcept { return job.options.engine == Engine::kTcp; }

// A plain TCP sender does not wait for our set-up, so what can be done comes before it.
Status prepare_output(Job& job, Output& output) {
    if (!is_tcp(job) || !job.options.bytes || !output.mappable())
        return {};
    job.meter.begin_setup();
    Status s = output.prepare(tcp_window_bytes(*job.options.bytes));
    job.meter.end_setup();
    return s;
}

Status send_side(Job& job) {
    Input input;
    if (Status s = input.open(job.options); !s.ok())
        return s;
    if (Status s = open_connection(job.options, job.connection); !s.ok())
        return s;
    Status s = is_tcp(job) ? tcp_send(job, input) : qp_send(job, input);
    if (s.ok())
        input.seek_end();
    return s;
}

Status receive_side(Job& job) {
    Output output;
    Verifier verifier;
    if (Status s = output.open(); !s.ok())
        return s;
    if (job.options.period != 0)
        verifier.expect(job.options.period);
    Status s = prepare_output(job, output);
    if (s.ok())
        s = open_connection(job.options, job.connection);
    if (!s.ok()) {
        // leave no file grown for a transfer that never began
        std::ignore = output.finish(0);
        return s;
    }
    s = is_tcp(job) ? tcp_receive(job, output, verifier) : qp_receive(job, output, verifier);
    job.report.validated = s.ok() && verifier.wanted();
    return s;
}

Status transfer(Job& job) {
    try {
        if (Status s = is_tcp(job) ? Status() : qp_precheck(job.options); !s.ok())
            return s;
        return job.options.sends ? send_side(job) : receive_side(job);
    } catch (const std::exception& e) {  // set-up only: verbs objects, memory
        return Status::failure(e.what());
    }
}

Report new_report(const Options& o) {
    Report r;
    r.role = o.sends ? "sender" : "receiver";
    r.requested_engine = engine_name(o.engine);
    r.engine = o.engine == Engine::kTcp ? "tcp" : "none";
    r.msg_size = o.msg_bytes;
    r.depth = o.depth;
    return r;
}

}  // namespace

int run(const Options& options) {
    tcpqp::Fd json;
    if (Status s = open_json(options.json, json); !s.ok()) {
        fmt::print(stderr, "ncqp: {}\n", s.text());
        return kExitFailure;
    }
    Report report = new_report(options);
    Meter meter;
    Connection connection;
    Progress progress(options.quiet);
    Job job{options, connection, report, meter, progress};

    Status status = transfer(job);
    progress.clear();
    if (connection.fd)
        read_tcp_info(connection.fd.get(), report);
    meter.fill(report);
    report.ok = status.ok();
    report.error = status.text();
    // A plain TCP peer would take an orderly end for the end of data.  A queue
    // pair's peer knows better, and a FIN is repeated when it is lost, a reset is not.
    if (!status.ok() && !connection.has_queue_pair)
        connection.reset();

    if (!status.ok())
        fmt::print(stderr, "ncqp: {}\n", status.text());
    if (status.ok() && !options.quiet)
        fmt::print(stderr, "ncqp: {}\n", report.line());
    if (Status s = write_json(json, report.json()); !s.ok()) {
        fmt::print(stderr, "ncqp: {}\n", s.text());
        return kExitFailure;
    }
    return status.ok() ? kExitOk : kExitFailure;
}

}  // namespace ncqp
