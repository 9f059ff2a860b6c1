// The bundled text apps as compositions of sections.
#pragma once

#include "actors/app.hpp"

namespace maestro {

/// One decoder with its own loss, section "teacher": what teacher.toml trains.
void compose_language_model(App& app);

/// A frozen teacher and a student that learns from it; a section "plain" in the job trains the same student without a
/// teacher beside them, for comparison.
void compose_distillation(App& app);

}  // namespace maestro
