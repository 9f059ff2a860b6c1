// SPDX-License-Identifier: Apache-2.0
// A trained model's answers to validation samples.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/job/job_document.hpp"
#include "runtime/page/page_parts.hpp"

namespace maestro {

struct AnswerOptions {
  std::int64_t with_pictures = 12;
  std::int64_t without = 2;
  std::int64_t max_tokens = 64;  ///< limit per answer
};

/// Builds the sections of a "vision_language" job with the weights of a finished run (section -> Hugging Face folder; a
/// section without a folder has its initial weights). Returns answers to the first question of samples spread over the
/// validation set, samples with images first. Skips samples with unreadable images. Returns none if the data does not
/// consist of conversations. Throws JobError if weights cannot be read.
[[nodiscard]] std::vector<PageAnswer> answer_samples(const JobDocument& job,
                                                     const std::map<std::string, std::string>& weights,
                                                     const AnswerOptions& options);

}  // namespace maestro
