// SPDX-License-Identifier: Apache-2.0
#include "actors/job/chosen_sections.hpp"

#include <algorithm>
#include <map>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

using Names = std::vector<std::string>;

bool holds(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::string listed(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Returns each section's teachers in order of the edges, without sections that have none.
std::map<std::string, Names> teachers_by_learner(const SectionGraph& graph) {
  std::map<std::string, Names> found;
  for (const GraphEdge& edge : graph.edges()) {
    const GraphNode& to = graph.node(edge.to);
    const bool chosen = std::ranges::any_of(to.ports.inputs,
                                            [&](const Port& port) { return port.chosen && port.name == edge.to_port; });
    const std::string& teacher = graph.node(edge.from).section_name();
    Names& names = found[to.section_name()];
    if (chosen && !holds(names, teacher)) names.push_back(teacher);
  }
  std::erase_if(found, [](const auto& entry) { return entry.second.empty(); });
  return found;
}

void check_names(const SourceTeachers& source, const Names& teachers, const JobTable& table) {
  for (const std::string& name : source.teachers) {
    if (holds(teachers, name)) continue;
    const auto nearest = nearest_name(name, teachers);
    table.fail("teachers", "\"" + printable(name) + "\" teaches no section of this job" +
                               (nearest            ? "; did you mean '" + *nearest + "'?"
                                : teachers.empty() ? "; no section learns from a teacher"
                                                   : "; its teachers: " + listed(teachers)));
  }
}

/// Refuses a teacher that no source names.
void check_teaches(const std::string& teacher, const std::vector<bool>& sources,
                   const std::map<std::string, Names>& learners, const JobTable& root) {
  if (std::ranges::find(sources, true) != sources.end()) return;
  const auto learner = std::ranges::find_if(learners, [&](const auto& entry) { return holds(entry.second, teacher); });
  root.table(learner->first)
      .fail("teacher", "\"" + printable(teacher) + "\" teaches no sample: no source of [data.mix] has it in its " +
                           "`teachers`; add it to a source, or remove it here");
}

}  // namespace

void choose_sections(SectionGraph& graph, const std::vector<SourceTeachers>& sources, const JobTable& root) {
  const JobTable mix = root.table("data").table("mix");
  const std::map<std::string, Names> learners = teachers_by_learner(graph);
  Names teachers;
  for (const auto& [learner, names] : learners) {
    std::ranges::copy_if(names, std::back_inserter(teachers), [&](const auto& name) { return !holds(teachers, name); });
  }
  std::map<std::string, std::vector<bool>> held;
  for (const SourceTeachers& source : sources) {
    const JobTable table = mix.table(source.source);
    check_names(source, teachers, table);
    const auto chosen = [&](const std::string& name) {
      return source.teachers.empty() || holds(source.teachers, name);
    };
    for (const auto& [learner, names] : learners) {
      if (std::ranges::any_of(names, chosen)) continue;
      table.fail("teachers", "names no teacher of [" + learner + "], which learns from " + listed(names));
    }
    for (const std::string& name : teachers) held[name].push_back(chosen(name));
  }
  for (const auto& [name, sources_of_it] : held) {
    check_teaches(name, sources_of_it, learners, root);
    for (const SectionId stage : graph.stages_of(name)) graph.set_sources(stage, SourceSet(sources_of_it));
  }
}

}  // namespace maestro
