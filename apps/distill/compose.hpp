// SPDX-License-Identifier: Apache-2.0
// Composes the bundled text apps from sections.
#pragma once

#include "actors/process/app.hpp"

namespace maestro {

/// Composes a decoder with its loss, section "teacher", for teacher.toml.
void compose_language_model(App& app);

/// Composes the same model from two sections, "trunk" and "head", on the devices that the job names; the gradient of
/// the hidden states returns over the edge between them. Both tables describe the complete model, with tied = false.
void compose_split_language_model(App& app);

/// Composes frozen teachers and a student that learns from them. The teachers are "teacher", or the sections that
/// student.teacher names; they run, or are on file (type = "recorded_teacher"). If the job has a section "plain", also
/// composes the same student without a teacher, for comparison.
///
/// With a table [memory], of type ngram_memory, the student reads its rows at student.memory_layer.
///
/// With a table [projector] the student reads images, by way of "vision" and "projector"; with [teacher_projector] the
/// teacher does, by "teacher_vision" or, if the job lacks that, by the student's frozen "vision". Another teacher's
/// sections, and the plain student's, begin with its name.
void compose_distillation(App& app);

}  // namespace maestro
