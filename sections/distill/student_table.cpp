// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/student_table.hpp"

#include <algorithm>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/generator_config.hpp"
#include "runtime/job/job_reader.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/distill/recorded_teacher.hpp"

namespace maestro {

namespace {

constexpr NumberRange positive{.min = 0.0, .min_open = true};

/// Returns the table whose `boundary` and `top_k` describe a teacher's output.
const JobTable& table_of_output(const JobTable& student, const JobTable& teacher) {
  return read_teacher_names(student).size() > 1 ? teacher : student;
}

JobTable table_of_teacher(const JobTable& student, const JobTable& root, const std::string& name) {
  if (root.has(name)) return root.table(name);
  std::vector<std::string> tables = root.keys();
  std::erase_if(tables, [&](const std::string& key) { return !root.holds_table(key) || key == student.name(); });
  const auto nearest = nearest_name(name, tables);
  student.fail("teacher", "there is no section [" + printable(name) + "] to learn from" +
                              (nearest ? "; did you mean '" + *nearest + "'?"
                                       : "; add its table, or set teacher = \"NAME\" to the one that teaches"));
}

/// Returns a recorded teacher, with the boundary and k of its records.
TeacherModel read_recorded(const JobTable& student, const JobTable& table) {
  const JobTable& output = table_of_output(student, table);
  if (output.has("boundary") && read_boundary(output, TeacherOutput::top_k_rest) != TeacherOutput::top_k_rest) {
    output.fail("boundary", "[" + table.name() + "] is recorded: leave boundary out, or set \"top_k_rest\"");
  }
  const std::string path = read_records_path(table);
  if (path.empty()) table.fail("path", "is not given; name the folder that `maestro teach` wrote");
  const Result<TeacherRecords> records = load_records(path);
  if (!records) table.fail("path", records.error().message);
  if (output.has("top_k") && read_top_k(output, records->k) != records->k) {
    output.fail("top_k",
                "the records of [" + table.name() + "] have k = " + std::to_string(records->k) + "; leave top_k out");
  }
  TeacherModel teacher;
  teacher.section = table.name();
  teacher.recorded = true;
  teacher.decoder.vocabulary = records->vocabulary;
  teacher.boundary = TeacherOutput::top_k_rest;
  teacher.top_k = records->k;
  return teacher;
}

TeacherModel read_live(const JobTable& student, const JobTable& table, const DataShape& data) {
  TeacherModel teacher = DistilledDecoder::read_teacher(table);
  default_vocabulary(table, teacher.decoder, data);
  teacher.boundary = read_teacher_boundary(student, table);
  teacher.top_k = read_top_k(table_of_output(student, table), teacher.top_k);
  return teacher;
}

/// Returns a weight for each teacher.
std::vector<double> read_weights(const JobTable& student, std::size_t teachers) {
  std::vector<double> weights = student.numbers(
      "teacher_weights", positive,
      {"of several teachers: their weights in the divergence, in the order of `teacher`; without it, equal"});
  if (!student.has("teacher_weights")) weights.assign(teachers, 1);
  if (weights.size() == teachers) return weights;
  student.fail("teacher_weights", "has " + std::to_string(weights.size()) +
                                      (weights.size() == 1 ? " weight" : " weights") + " for " +
                                      std::to_string(teachers) + (teachers == 1 ? " teacher" : " teachers") +
                                      "; give each teacher one, or leave it out");
}

/// Sets the temperature of loss = "policy_gradient", the generator's. Refuses settings that loss does not work with.
void set_policy_temperature(const JobTable& student, const JobTable& root, const std::string& generator,
                            DistilledDecoder::Options& options) {
  if (generator.empty()) {
    student.fail("loss", "is \"policy_gradient\", which learns from samples that the student makes; add a table " +
                             std::string("[generator], or set \"divergence\""));
  }
  const JobTable table = root.table(generator);
  const GeneratorConfig config = read_generator(table);
  if (config.on_policy == 0) {
    table.fail("on_policy", "is 0, and loss = \"policy_gradient\" learns from made samples; set it above 0");
  }
  const std::string drawn =
      ", and loss = \"policy_gradient\" learns from tokens that are drawn by the student's "
      "probabilities; ";
  if (config.temperature == 0) table.fail("temperature", "is 0" + drawn + "set it above 0");
  if (config.top_k != 0) table.fail("top_k", "is set" + drawn + "leave it out");
  if (config.top_p != 1) table.fail("top_p", "is set" + drawn + "leave it out");
  if (student.has("temperature") && options.temperature != config.temperature) {
    student.fail("temperature", "is not " + generator + ".temperature, at which loss = \"policy_gradient\" compares " +
                                    "student and teacher; leave it out");
  }
  options.temperature = config.temperature;
}

/// Refuses boundary = sampled, which only teaches made samples, if samples are read too.
void check_sampled(const JobTable& student, const JobTable& table, const JobTable& root, const std::string& generator,
                   const TeacherModel& teacher) {
  if (teacher.boundary != TeacherOutput::sampled) return;
  const GeneratorConfig config = read_generator(root.table(generator));
  if (config.on_policy == 1 && config.from_step == 1) return;
  table_of_output(student, table)
      .fail("boundary", "is \"sampled\", which only teaches made samples, and the job reads samples too; set " +
                            generator + (config.on_policy == 1 ? ".from_step" : ".on_policy") +
                            " = 1, or boundary = \"hidden\"");
}

/// Refuses keys of the student's table that describe a single teacher's output.
void refuse_output_keys(const JobTable& student) {
  for (const char* key : {"boundary", "top_k"}) {
    if (student.has(key)) student.fail(key, "stands in the tables of the teachers if there are several");
  }
}

}  // namespace

std::vector<std::string> read_teacher_names(const JobTable& student) {
  std::vector<std::string> names =
      student.names("teacher", "teacher", {"the section that the student learns from, or a list of several"});
  if (names.empty()) student.fail("teacher", "names no section to learn from; name one or several");
  for (const std::string& name : names) {
    if (std::ranges::count(names, name) > 1) student.fail("teacher", "names \"" + printable(name) + "\" twice");
  }
  return names;
}

bool is_recorded(const JobTable& teacher) {
  return teacher.has("type") && read_type(teacher, "") == recorded_teacher_type;
}

TeacherOutput read_teacher_boundary(const JobTable& student, const JobTable& teacher) {
  if (is_recorded(teacher)) return TeacherOutput::top_k_rest;
  return read_boundary(table_of_output(student, teacher), TeacherOutput::hidden);
}

DistilledDecoder::Options read_student(const JobTable& student, const JobTable& root, const DataShape& data,
                                       const std::string& generator) {
  DistilledDecoder::Options options = DistilledDecoder::Options::read(student);
  options.generates = !generator.empty();
  if (options.policy_gradient) set_policy_temperature(student, root, generator, options);
  const std::vector<std::string> names = read_teacher_names(student);
  const std::vector<double> weights = read_weights(student, names.size());
  if (names.size() > 1) refuse_output_keys(student);
  options.teachers.clear();
  for (const std::string& name : names) {
    const JobTable table = table_of_teacher(student, root, name);
    options.teachers.push_back(is_recorded(table) ? read_recorded(student, table) : read_live(student, table, data));
    options.teachers.back().weight = weights[options.teachers.size() - 1];
    if (options.policy_gradient) check_sampled(student, table, root, generator, options.teachers.back());
  }
  return options;
}

}  // namespace maestro
