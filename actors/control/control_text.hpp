// SPDX-License-Identifier: Apache-2.0
// Answers of the control service as text for users and JSON for programs. Pure.
#pragma once

#include <string>

namespace maestro {

// Generated, see control.thrift.
namespace control {
class Checkpoint;
class Leaving;
class Plan;
class Standing;
class Status;
}  // namespace control

/// Returns lines without a break at the end.
[[nodiscard]] std::string plain_text(const control::Status& status);
[[nodiscard]] std::string plain_text(const control::Plan& plan);
[[nodiscard]] std::string plain_text(const control::Checkpoint& checkpoint);
[[nodiscard]] std::string plain_text(const control::Standing& standing);
[[nodiscard]] std::string plain_text(const control::Leaving& leaving);

/// Returns a single line; members are named as in control.thrift, values of enumerations in lower case.
[[nodiscard]] std::string json_text(const control::Status& status);
[[nodiscard]] std::string json_text(const control::Plan& plan);
[[nodiscard]] std::string json_text(const control::Checkpoint& checkpoint);
[[nodiscard]] std::string json_text(const control::Standing& standing);
[[nodiscard]] std::string json_text(const control::Leaving& leaving);

}  // namespace maestro
