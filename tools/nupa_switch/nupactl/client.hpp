// SPDX-License-Identifier: BSD-3-Clause
// One request to a running nupa_switch.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace nupa::ctl {

using Json = nlohmann::json;

// The switch could not be reached or refused; what() is for the user.
class RequestError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// Sends @request to the control socket at @path and returns the reply; throws RequestError.
Json request(const std::string& path, const Json& request);

}  // namespace nupa::ctl
