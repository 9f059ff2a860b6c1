// SPDX-License-Identifier: Apache-2.0
#include "apps/distill/compose.hpp"

#include <algorithm>

#include "runtime/device/cpu_device.hpp"
#include "runtime/job/job_reader.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/distill/recorded_teacher.hpp"

namespace maestro {

namespace {

/// Returns two replicas where the host has two cores: frozen replicas fill the gaps that trained sections leave.
std::int64_t replicas_here(const App& app, const std::string& section) {
  const JobTable table = app.table(section);
  if (table.has("tensor") || table.has("context") || table.has("pipeline")) return 1;  // the cores are spoken for
  return std::min<std::int64_t>(2, static_cast<std::int64_t>(usable_cores().size()));
}

/// Returns whether the job's teacher is on file.
bool recorded(const App& app) {
  const JobTable table = app.table("teacher");
  return table.has("type") && read_type(table, "") == recorded_teacher_type;
}

void connect_teacher(App& app, const SectionBuilder& teacher, const SectionBuilder& student) {
  const TeacherOutput fallback = recorded(app) ? TeacherOutput::top_k_rest : TeacherOutput::hidden;
  switch (read_boundary(app.table(student.name()), fallback)) {
    case TeacherOutput::hidden:
      app.connect(teacher.port("hidden"), student.port("teacher_hidden"));
      break;
    case TeacherOutput::logits:
      app.connect(teacher.port("logits"), student.port("teacher_logits"));
      break;
    case TeacherOutput::top_k_rest:
      app.connect(teacher.port("rest"), student.port("teacher_rest"));
      [[fallthrough]];
    case TeacherOutput::top_k:
      app.connect(teacher.port("top_values"), student.port("teacher_top_values"));
      app.connect(teacher.port("top_indices"), student.port("teacher_top_indices"));
      break;
  }
}

}  // namespace

void compose_language_model(App& app) {
  auto& data = app.source("corpus");
  auto& model = app.section("teacher", "decoder_lm").replicas(replicas_here(app, "teacher"));
  app.connect(data.port("tokens"), model.port("tokens"));
  app.connect(data.port("targets"), model.port("targets"));
}

void compose_split_language_model(App& app) {
  auto& data = app.source("corpus");
  auto& trunk = app.section("trunk", "decoder_trunk");
  auto& head = app.section("head", "language_model_head");
  app.connect(data.port("tokens"), trunk.port("tokens"));
  app.connect(trunk.port("hidden"), head.port("hidden"));
  app.connect(data.port("targets"), head.port("targets"));
}

void compose_distillation(App& app) {
  auto& data = app.source("corpus");
  auto& teacher = app.section("teacher", "decoder_trunk").forward_only();
  if (!recorded(app)) teacher.replicas(replicas_here(app, "teacher"));
  auto& student = app.section("student", "distilled_decoder");
  app.connect(data.port("tokens"), teacher.port("tokens"));
  app.connect(data.port("tokens"), student.port("tokens"));
  app.connect(data.port("targets"), student.port("targets"));
  connect_teacher(app, teacher, student);
  if (!app.has("plain")) return;
  auto& plain = app.section("plain", "decoder_lm");
  app.connect(data.port("tokens"), plain.port("tokens"));
  app.connect(data.port("targets"), plain.port("targets"));
}

}  // namespace maestro
