// SPDX-License-Identifier: Apache-2.0
// Compares a step that was done again with the record of the run. Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns the first figure of two lines of steps.jsonl that differs by a bit, with both values: "step 7, section
/// 'student': loss was 2.5, is 2.25"; nothing where samples and figures are equal. Times are not compared. Errors
/// (corrupt): a line that is none.
[[nodiscard]] Result<std::optional<std::string>> step_difference(std::string_view recorded, std::string_view again);

/// Returns the losses of a line of steps.jsonl: "section 'plain' loss 2.5; section 'student' loss 3.1".
[[nodiscard]] std::string losses_of(std::string_view line);

/// Digests of sections (section_digests()) by the step of a checkpoint.
using StepDigests = std::map<std::uint64_t, std::map<std::string, std::string>>;
/// Returns the digests that the events of a record have, each as of the last checkpoint of its step.
[[nodiscard]] Result<StepDigests> recorded_digests(const std::filesystem::path& record);
/// Returns the first of the steps that both have at which a section differs: "step 20: the values or the optimizer
/// state of section 'student' differ"; else nothing.
[[nodiscard]] std::optional<std::string> digest_difference(const StepDigests& recorded, const StepDigests& again);

}  // namespace maestro
