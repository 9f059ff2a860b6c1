// SPDX-License-Identifier: Apache-2.0
// Answers of a trained model to samples outside its training.
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
  std::int64_t max_tokens = 64;  ///< of an answer
};

/// Builds the sections of a job of the app "vision_language" with the weights of a finished run (section -> Hugging
/// Face folder; a section without a folder has its first weights) and answers the first question of samples spread over
/// the validation set, samples with pictures first. Samples whose pictures cannot be read are passed over. Empty for
/// data that is no conversations. Throws JobError when weights cannot be read.
[[nodiscard]] std::vector<PageAnswer> answer_samples(const JobDocument& job,
                                                     const std::map<std::string, std::string>& weights,
                                                     const AnswerOptions& options);

}  // namespace maestro
