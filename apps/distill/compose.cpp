// SPDX-License-Identifier: Apache-2.0
#include "apps/distill/compose.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/core/usable_cores.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/model/hf_vision_config.hpp"
#include "sections/decoder/decoder_shape.hpp"
#include "sections/distill/student_table.hpp"
#include "sections/memory/ngram_memory.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

/// Returns two replicas if the host has two cores for them, because frozen replicas fill the gaps of trained sections.
std::int64_t replicas_here(const App& app, const std::string& section) {
  const JobTable table = app.table(section);
  if (table.has("tensor") || table.has("context") || table.has("pipeline")) return 1;  // all cores are in use
  return std::min({std::int64_t{2}, static_cast<std::int64_t>(usable_cores().size()), app.cpu_devices()});
}

/// Connects a teacher's outputs to the student's ports with the prefix `prefix`.
void connect_teacher(App& app, const SectionBuilder& teacher, const SectionBuilder& student,
                     const std::string& prefix) {
  const auto connect = [&](const std::string& output) {
    app.connect(teacher.port(output), student.port(prefix + "_" + output));
  };
  switch (read_teacher_boundary(app.table(student.name()), app.table(teacher.name()))) {
    case TeacherOutput::hidden:
      connect("hidden");
      break;
    case TeacherOutput::logits:
      connect("logits");
      break;
    case TeacherOutput::sampled:
      connect("sampled");
      break;
    case TeacherOutput::top_k_rest:
      connect("rest");
      [[fallthrough]];
    case TeacherOutput::top_k:
      connect("top_values");
      connect("top_indices");
      break;
  }
}

/// Connects the visual rows of section `reader`: from PREFIXprojector, which reads PREFIXvision if the job has it, else
/// vision. If `frozen`, these sections only run forward, and read images by the processor of their model.
void connect_images(App& app, const SectionBuilder& data, SectionBuilder& reader, const std::string& prefix,
                    bool frozen, std::map<std::string, SectionBuilder*>& encoders) {
  const std::string name = prefix + "projector";
  if (!app.has(name)) return;
  const bool shared = !prefix.empty() && !app.has(prefix + "vision");
  const std::string vision = shared ? "vision" : prefix + "vision";
  if (shared && app.table(vision).flag("trained", true)) {
    throw JobError("[" + name + "] reads [vision], which is trained for the student; add a table [" + prefix +
                   "vision] for " + reader.name() + ", or set vision.trained = false");
  }
  SectionBuilder*& encoder = encoders[vision];
  if (encoder == nullptr) {
    encoder = &app.section(vision, "vision_encoder");
    if (frozen && !shared) encoder->forward_only();
    app.connect(data.port("pixels"), encoder->port("pixels"));
    app.connect(data.port("places"), encoder->port("places"));
  }
  auto& projector = app.section(name, "projector");
  if (frozen) projector.forward_only();
  if (frozen && !shared) {
    const std::string folder = read_weights_folder(app.table(vision));
    for (SectionBuilder* const section : {encoder, &projector, &reader}) section->reads_as(reader.name(), folder);
  }
  app.connect(encoder->port("features"), projector.port("features"));
  for (const char* port : {"places", "sources", "weights"})
    app.connect_where_present(data.port(port), projector.port(port));
  app.connect(projector.port("visual"), reader.port("visual"));
  for (std::int64_t tap = 0; tap < most_taps; ++tap) {
    const std::string features = tap_name("features", tap), visual = tap_name("visual", tap);
    app.connect_where_present(encoder->port(features), projector.port(features));
    app.connect_where_present(projector.port(visual), reader.port(visual));
  }
  app.connect_where_present(data.port("marks"), reader.port("marks"));
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
  const std::vector<std::string> names = read_teacher_names(app.table("student"));
  std::vector<SectionBuilder*> teachers;
  for (const std::string& name : names) {
    auto& teacher = app.section(name, "decoder_trunk").forward_only();
    if (!is_recorded(app.table(name))) teacher.replicas(replicas_here(app, name));
    teachers.push_back(&teacher);
  }
  auto& student = app.section("student", "distilled_decoder");
  for (const SectionBuilder* teacher : teachers) {
    app.connect(data.port("tokens"), teacher->port("tokens"));
    app.connect_where_present(data.port("targets"), teacher->port("targets"));
  }
  app.connect(data.port("tokens"), student.port("tokens"));
  app.connect(data.port("targets"), student.port("targets"));
  app.connect_where_present(data.port("sampled"), student.port("sampled"));
  for (const SectionBuilder* teacher : teachers) {
    connect_teacher(app, *teacher, student, names.size() == 1 ? "teacher" : teacher->name());
  }
  if (app.has("memory")) {
    auto& memory = app.section("memory", ngram_memory_type);
    app.connect(data.port("tokens"), memory.port("tokens"));
    app.connect(memory.port("memory"), student.port("memory"));
  }
  if (app.has("generator")) {
    auto& generator = app.section("generator", "generator");
    app.connect(student.port(std::string(weights_port)), generator.port(std::string(weights_port)));
  }
  std::map<std::string, SectionBuilder*> encoders;
  connect_images(app, data, student, "", false, encoders);
  for (SectionBuilder* teacher : teachers) connect_images(app, data, *teacher, teacher->name() + "_", true, encoders);
  if (!app.has("plain")) return;
  auto& plain = app.section("plain", "decoder_lm");
  connect_images(app, data, plain, "plain_", false, encoders);
  app.connect(data.port("tokens"), plain.port("tokens"));
  app.connect(data.port("targets"), plain.port("targets"));
}

}  // namespace maestro
