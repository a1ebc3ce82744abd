// SPDX-License-Identifier: BSD-3-Clause
// A nupa_switch process of a test: started, ready, stopped, with its own directory.
#pragma once

#include <sys/types.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fake_port.hpp"

namespace nupa::testing {

// A new one, which the caller removes.  Throws std::system_error.
std::string make_directory();

class DaemonProcess {
public:
    // @ports VM ports named n0, n1, ...; @extra further arguments.  Returns once it is ready.
    explicit DaemonProcess(unsigned ports, std::vector<std::string> extra = {});
    DaemonProcess(const DaemonProcess&) = delete;
    DaemonProcess& operator=(const DaemonProcess&) = delete;
    ~DaemonProcess();

    [[nodiscard]] std::string path(const std::string& name) const {
        return directory_ + "/" + name;
    }
    std::unique_ptr<FakePort> plug(unsigned port, uint64_t ram_bytes = 64 << 20);
    nlohmann::json control(const nlohmann::json& request);
    [[nodiscard]] double cpu_seconds() const;
    [[nodiscard]] pid_t pid() const { return pid_; }
    // Sends @signal and returns the exit status; -1 when it does not end in kWaitMs.
    int stop(int signal);

private:
    std::string directory_;
    pid_t pid_ = -1;
};

struct CommandResult {
    int status = -1;
    std::string out;  // stdout and stderr
};
// Runs a program to its end, at most kWaitMs.
CommandResult run(const std::vector<std::string>& argv);
// The same of nupactl, with this daemon's control socket.
CommandResult nupactl(const DaemonProcess& daemon, std::vector<std::string> arguments);

}  // namespace nupa::testing
