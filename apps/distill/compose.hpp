// SPDX-License-Identifier: Apache-2.0
// The bundled text apps as compositions of sections.
#pragma once

#include "actors/process/app.hpp"

namespace maestro {

/// Composes a decoder with its own loss, section "teacher", for teacher.toml.
void compose_language_model(App& app);

/// The same model cut in two: sections "trunk" and "head", which live where the job puts them; the gradient of the
/// hidden states returns over the edge between them. Both tables describe the whole model, with tied = false.
void compose_split_language_model(App& app);

/// Frozen teachers, present or on file (type = "recorded_teacher"), and a student that learns from them: "teacher", or
/// the sections that student.teacher names. A section "plain" in the job trains the same student without a teacher
/// beside them, for comparison.
void compose_distillation(App& app);

}  // namespace maestro
