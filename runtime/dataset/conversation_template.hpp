// SPDX-License-Identifier: Apache-2.0
// The chat template of conversations about images for models without a processor:
//   system text \n USER: question \n ASSISTANT: answer end USER: question \n ASSISTANT: ...
// without the spaces around the newlines and the end; without a system text, "USER: " comes first. It refuses messages
// other than questions and answers in turn after an optional system text.
#pragma once

#include <string>
#include <string_view>

namespace maestro {

/// The template's source. It writes "<image>" for an image, and eos_token after an answer.
extern const char* const conversation_template;

/// Returns the first question in the template's text up to an answer, without the white space around it.
[[nodiscard]] std::string first_question(std::string_view text);

}  // namespace maestro
