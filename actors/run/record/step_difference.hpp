// SPDX-License-Identifier: Apache-2.0
// Compares a repeated step with the record of the run. Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns the first figure that differs between two lines of steps.jsonl, with both values: "step 7, section
/// 'student': loss was 2.5, is 2.25"; nothing if samples and figures are bitwise equal. Times are not compared. Fails
/// (corrupt) if a line cannot be read.
[[nodiscard]] Result<std::optional<std::string>> step_difference(std::string_view recorded, std::string_view again);

/// Returns the losses in a line of steps.jsonl: "section 'plain' loss 2.5; section 'student' loss 3.1".
[[nodiscard]] std::string losses_of(std::string_view line);

/// Digests of sections (section_digests()) by the step of a checkpoint.
using StepDigests = std::map<std::uint64_t, std::map<std::string, std::string>>;
/// Returns the digests in a record's events; if a step has several checkpoints, from the last.
[[nodiscard]] Result<StepDigests> recorded_digests(const std::filesystem::path& record);
/// Returns the first difference at a step that both have: "step 20: the values or the optimizer state of section
/// 'student' differ"; nothing if they agree.
[[nodiscard]] std::optional<std::string> digest_difference(const StepDigests& recorded, const StepDigests& again);

}  // namespace maestro
