// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/schema_tree.hpp"

#include <set>

#include "runtime/core/printable.hpp"

namespace maestro::parquet {
namespace {

/// Levels and path of the elements around an element.
struct Place {
  std::string path;
  unsigned definition = 0;
  unsigned repetition = 0;
  int depth = 0;
};

/// Walks through the elements, depth first.
class TreeBuilder {
 public:
  explicit TreeBuilder(const std::vector<SchemaElement>& schema) : schema_(schema) {}

  SchemaTree build() {
    if (schema_.empty() || schema_.front().type || schema_.front().children <= 0) damaged("the file lacks columns");
    tree_.root = structure(take(), {});
    if (at_ != schema_.size()) damaged("the schema has elements that belong to no group");
    return std::move(tree_);
  }

 private:
  const SchemaElement& take() {
    if (at_ == schema_.size()) damaged("the schema ends inside of a group");
    return schema_[at_++];
  }

  /// Returns the place of an element: levels increase if it is optional or repeated.
  static Place inside(const Place& around, const SchemaElement& element) {
    Place made = around;
    made.path += (around.path.empty() ? "" : ".") + element.name;
    if (element.repetition != Repetition::required) ++made.definition;
    if (element.repetition == Repetition::repeated) ++made.repetition;
    if (++made.depth > most_schema_levels) {
      unsupported("columns nest deeper than " + std::to_string(most_schema_levels) + " levels");
    }
    return made;
  }

  /// Makes the node of the next element. Elements outside of an annotated list that repeat are lists.
  SchemaNode node(const Place& around) {
    const SchemaElement& element = take();
    const Place place = inside(around, element);
    SchemaNode made =
        element.repetition == Repetition::repeated ? list_of(content(element, place), place) : content(element, place);
    made.optional = element.repetition == Repetition::optional;
    append_text(element.name, made.key);
    made.key += ':';
    return made;
  }

  /// Makes the node for an element's content, without its repetition.
  SchemaNode content(const SchemaElement& element, const Place& place) {
    if (element.type) return value(element, place);
    const bool is_list = element.meaning == Meaning::list || element.meaning == Meaning::map;
    if (!is_list || element.children != 1 || at_ == schema_.size()) return structure(element, place);
    if (schema_[at_].repetition != Repetition::repeated) return structure(element, place);
    return annotated_list(element, place);
  }

  /// Makes a list of a group LIST or MAP around a repeated element.
  SchemaNode annotated_list(const SchemaElement& group, const Place& around) {
    const SchemaElement& repeated = take();
    const Place place = inside(around, repeated);
    // Older writers repeat the element itself; newer ones repeat a group around it.
    const bool is_element = group.meaning == Meaning::map || repeated.type || repeated.children != 1 ||
                            repeated.name == "array" || repeated.name == group.name + "_tuple" ||
                            (at_ < schema_.size() && schema_[at_].repetition == Repetition::repeated);
    return list_of(is_element ? content(repeated, place) : node(place), place);
  }

  static SchemaNode list_of(SchemaNode element, const Place& place) {
    SchemaNode made;
    made.kind = NodeKind::list;
    made.definition = place.definition - 1;
    made.repetition = place.repetition;
    made.first_leaf = element.first_leaf;
    made.end_leaf = element.end_leaf;
    made.children.push_back(std::move(element));
    return made;
  }

  SchemaNode structure(const SchemaElement& element, const Place& place) {
    if (element.children <= 0) damaged("group \"" + printable(element.name) + "\" of the schema is empty");
    SchemaNode made;
    made.kind = NodeKind::structure;
    made.definition = place.definition;
    made.first_leaf = tree_.leaves.size();
    std::set<std::string> keys;
    for (std::int32_t child = 0; child < element.children; ++child) {
      made.children.push_back(node(place));
      if (!keys.insert(made.children.back().key).second) {
        std::string name = made.children.back().key;
        name.pop_back();
        unsupported("two columns have the name " + printable(name));
      }
    }
    made.end_leaf = tree_.leaves.size();
    return made;
  }

  SchemaNode value(const SchemaElement& element, const Place& place) {
    SchemaNode made;
    made.definition = place.definition;
    made.first_leaf = tree_.leaves.size();
    made.end_leaf = made.first_leaf + 1;
    Leaf& leaf = tree_.leaves.emplace_back();
    leaf.path = printable(place.path);
    leaf.form = form_of(element);
    leaf.type = {{*element.type, static_cast<std::size_t>(element.type_bytes)}, place.definition, place.repetition};
    return made;
  }

  const std::vector<SchemaElement>& schema_;
  std::size_t at_ = 0;
  SchemaTree tree_;
};

/// Marks columns whose values become a word.
void leave_out_values(SchemaTree& tree, const SchemaNode& node) {
  for (const SchemaNode& child : node.children) {
    leave_out_values(tree, child);
    if (child.kind != NodeKind::value) continue;
    Leaf& leaf = tree.leaves[child.first_leaf];
    const bool in_list = node.kind == NodeKind::list;
    leaf.type.wanted = leaf.form.kind != ValueForm::Kind::binary && !(in_list && leaf.form.is_number());
  }
}

/// Marks columns whose bytes are images or sounds.
void keep_blobs(SchemaTree& tree) {
  constexpr std::array<std::string_view, 4> columns{"audio", "audios", "image", "images"};
  for (Leaf& leaf : tree.leaves) {
    const std::string_view column = std::string_view(leaf.path).substr(0, leaf.path.find('.'));
    const bool named = std::ranges::find(columns, column) != columns.end();
    leaf.blob = leaf.form.kind == ValueForm::Kind::binary && (named || leaf.path.ends_with(".bytes"));
    leaf.type.wanted = leaf.type.wanted || leaf.blob;
  }
}

}  // namespace

SchemaTree make_schema_tree(const std::vector<SchemaElement>& schema, bool images) {
  SchemaTree tree = TreeBuilder(schema).build();
  leave_out_values(tree, tree.root);
  if (images) keep_blobs(tree);
  return tree;
}

}  // namespace maestro::parquet
