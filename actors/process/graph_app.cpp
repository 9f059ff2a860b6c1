// SPDX-License-Identifier: Apache-2.0
#include "actors/process/graph_app.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

constexpr const char* edges_key = "edges";
constexpr const char* source_name = "corpus";
constexpr std::array<std::string_view, 8> tables_of_runs{"train",     "data",      "schedule",  "guard",
                                                         "transport", "emulation", "observers", "plan"};
constexpr std::string_view arrow = "->";
constexpr std::string_view example = "\"corpus.tokens -> model.tokens\"";

struct Edge {
  PortRef from;
  PortRef to;
};

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

std::string quoted_edge(const std::string& text) {
  return "\"" + printable(text) + "\"";
}

PortRef port_in(const JobTable& root, const std::string& edge, std::string_view end) {
  const std::string text = trimmed(end);
  const std::size_t dot = text.rfind('.');
  if (dot != std::string::npos && dot > 0 && dot + 1 < text.size() && text.find_first_of(" \t>") == std::string::npos) {
    return {text.substr(0, dot), text.substr(dot + 1)};
  }
  root.fail(edges_key,
            quoted_edge(edge) + " is not an edge; write SECTION.PORT -> SECTION.PORT, as in " + std::string(example));
}

Edge edge_in(const JobTable& root, const std::string& text) {
  const std::string_view whole = text;
  const std::size_t at = std::min(whole.find(arrow), whole.size());
  return {port_in(root, text, whole.substr(0, at)),
          port_in(root, text, whole.substr(std::min(at + arrow.size(), whole.size())))};
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// Throws JobError if a section named by an edge does not exist. `tables`: the tables of all sections.
void check_section(const JobTable& root, const std::string& edge, const std::string& name,
                   const std::vector<std::string>& tables) {
  std::vector<std::string> sections{source_name};
  sections.insert(sections.end(), tables.begin(), tables.end());
  if (contains(sections, name)) return;
  std::string known;
  for (const std::string& each : sections) known += (known.empty() ? "" : ", ") + each;
  if (root.has(name)) {
    root.fail(name, "lacks a `type`, but " + quoted_edge(edge) + " names it as a section; sections are " + known);
  }
  const auto nearest = nearest_name(name, sections);
  root.fail(edges_key, quoted_edge(edge) + ": there is no section '" + printable(name) + "'; " +
                           (nearest ? "did you mean '" + *nearest + "'?" : "sections are " + known));
}

void check_name(const JobTable& root, const std::string& section) {
  if (section == source_name) {
    root.fail(section, "is the name of the source, which [data] describes; choose another name for the section");
  }
  if (std::ranges::find(tables_of_runs, section) != tables_of_runs.end()) {
    root.table(section).fail(
        "type", "this table describes the run and cannot be a section; choose another name for the section");
  }
}

std::string read_registered_type(App& app, const std::string& name) {
  std::vector<std::string> types;
  for (const SectionRegistry::Listing& listing : app.registry().list()) types.push_back(listing.type);
  return app.table(name).choice("type", "", types);
}

}  // namespace

std::vector<std::string> read_edges(const JobTable& root) {
  return root.texts(edges_key, {},
                    {"edges of the app graph, from an output port to an input port: \"SECTION.PORT -> SECTION.PORT\"; "
                     "each table with a `type` is a section, and the source described by [data] is named corpus"});
}

void compose_graph(App& app) {
  const JobTable root = app.job();
  const std::vector<std::string> texts = read_edges(root);
  if (texts.empty()) {
    root.fail(edges_key, "is not given; list the edges of the graph, as in edges = [" + std::string(example) + "]");
  }
  const std::vector<std::string> tables = root.tables_with("type");
  for (const std::string& name : tables) check_name(root, name);
  std::vector<Edge> edges;
  std::vector<std::string> sections;  // in the order of edges: a job's record does not keep the order of tables
  for (const std::string& text : texts) {
    edges.push_back(edge_in(root, text));
    for (const std::string& name : {edges.back().from.section, edges.back().to.section}) {
      check_section(root, text, name, tables);
      if (!contains(sections, name)) sections.push_back(name);
    }
  }
  if (!contains(sections, source_name)) {
    root.fail(edges_key, std::string("no edge begins at the source '") + source_name +
                             "', whose samples [data] describes; add one, as in " + std::string(example));
  }
  for (const std::string& name : tables) {
    if (contains(sections, name)) continue;
    root.fail(name, "no edge names this section; add one to `edges`, or remove the table");
  }
  app.source(source_name);
  for (const std::string& name : sections) {
    if (name != source_name) app.section(name, read_registered_type(app, name));
  }
  for (const Edge& edge : edges) app.connect(edge.from, edge.to, edges_key);
}

}  // namespace maestro
