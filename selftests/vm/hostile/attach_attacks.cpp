// SPDX-License-Identifier: BSD-3-Clause
// What threads and processes of one user can do to a socket while it gets, has or loses a
// queue pair.  Connections run over loopback, both ends are ours.
//
//   attach_attacks --case NAME [--rounds N]
//   attach_attacks --case timestamps [--connect ADDR] --port PORT
//   attach_attacks --case early --port PORT [--rounds N]      for a peer made by hand,
//   attach_attacks --case unready --port PORT                 and one that is never ready
//   attach_attacks --case successor [--connect ADDR] --port PORT [--rounds N]
//
// Prints one JSON object and exits with 0 if all ended as it should.
#include <map>
#include <vector>

#include "attach_attacks.hpp"

namespace {

using namespace nupa::programs;
using namespace nupa::programs::attach;

const std::map<std::string, void (*)(const tcpqp::Context&, const Options&)> kCases{
    {"steal", steal},       {"same_socket", same_socket},
    {"reattach", reattach}, {"reset", reset},
    {"blocked", blocked},   {"slip", slip},
    {"readers", readers},   {"send_buffer", send_buffer},
    {"hold", hold},         {"timestamps", timestamps},
    {"early", early},       {"another", another},
    {"unready", unready},   {"successor", successor},
};

}  // namespace

int main(int argc, char** argv) {
    Options o;
    std::vector<std::string> names;
    for (const auto& [name, run] : kCases)
        names.push_back(name);
    return Command("attach_attacks", "Others use a socket while it gets or loses a queue pair")
        .peer(o.peer)
        .choice("--case", o.which, names)
        .option("--rounds", o.rounds)
        .run(argc, argv, [&] {
            const auto context = tcpqp::open_device(o.peer.interface);
            kCases.at(o.which)(*context, o);
            return 0;
        });
}
