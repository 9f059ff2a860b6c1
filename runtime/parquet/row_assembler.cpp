// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/row_assembler.hpp"

#include <utility>

namespace maestro::parquet {

namespace {

constexpr std::size_t most_blob_bytes = std::size_t{256} << 20;

}  // namespace

void RowAssembler::begin(const PageFile& file, const RowGroup& group) {
  columns_.clear();
  at_ = 0;
  if (group.columns.size() != tree_.leaves.size()) {
    damaged("it has " + std::to_string(group.columns.size()) + " columns, and the schema has " +
            std::to_string(tree_.leaves.size()));
  }
  columns_.reserve(group.columns.size());
  for (std::size_t leaf = 0; leaf < group.columns.size(); ++leaf) {
    columns_.emplace_back(file, group.columns[leaf], tree_.leaves[leaf].type);
    ColumnReader& column = use(leaf);
    if (group.columns[leaf].type != tree_.leaves[leaf].type.value.type) damaged("its type is not the schema's");
    column.next();
  }
}

void RowAssembler::next_row(std::string& json, std::vector<std::string>& blobs) {
  json.clear();
  json_ = &json;
  blobs.clear();
  blobs_ = &blobs;
  blob_bytes_ = 0;
  write(tree_.root, 0);
}

void RowAssembler::end() {
  for (std::size_t leaf = 0; leaf < columns_.size(); ++leaf) {
    if (!use(leaf).at_end()) damaged("the column has more values than the row group has rows");
  }
}

std::string RowAssembler::place() const {
  if (at_ >= columns_.size()) return "";
  const std::size_t pages = columns_[at_].pages();
  return "column \"" + tree_.leaves[at_].path + "\"" + (pages == 0 ? "" : ", page " + std::to_string(pages));
}

void RowAssembler::write(const SchemaNode& node, unsigned repetition) {
  const ColumnReader& first = use(node.first_leaf);
  if (first.at_end()) damaged("the column has fewer values than the row group has rows");
  const unsigned definition = first.definition();
  if (definition < node.definition) {
    if (!node.optional || definition + 1 < node.definition) damaged("its definition levels contradict its neighbours'");
    *json_ += "null";
    return pass(node, repetition, definition);
  }
  if (node.kind == NodeKind::value) return write_value(node, repetition);
  if (node.kind == NodeKind::structure) return write_structure(node, repetition);
  write_list(node, repetition);
}

void RowAssembler::write_value(const SchemaNode& node, unsigned repetition) {
  ColumnReader& column = use(node.first_leaf);
  if (column.repetition() != repetition) damaged("its repetition levels contradict its neighbours'");
  if (tree_.leaves[at_].blob) {
    *json_ += std::to_string(blobs_->size());
    blobs_->emplace_back(column.value());
    blob_bytes_ += blobs_->back().size();
    if (blob_bytes_ > most_blob_bytes) unsupported("the row has more than 256 MiB of images");
  } else if (tree_.leaves[at_].type.wanted) {
    append_value(tree_.leaves[at_].form, column.value(), *json_);
  } else {
    *json_ += "\"(binary)\"";
  }
  if (json_->size() > longest_row) unsupported("the row is longer than 64 MiB");
  column.next();
}

void RowAssembler::write_structure(const SchemaNode& node, unsigned repetition) {
  char mark = '{';
  for (const SchemaNode& field : node.children) {
    *json_ += std::exchange(mark, ',');
    *json_ += field.key;
    write(field, repetition);
  }
  *json_ += '}';
}

void RowAssembler::write_list(const SchemaNode& node, unsigned repetition) {
  const SchemaNode& element = node.children.front();
  ColumnReader& first = use(node.first_leaf);
  if (first.definition() == node.definition) {
    *json_ += "[]";
    return pass(node, repetition, node.definition);
  }
  if (element.kind == NodeKind::value && tree_.leaves[at_].form.is_number()) {
    if (first.repetition() != repetition) damaged("its repetition levels contradict its neighbours'");
    *json_ += "\"(numbers)\"";
    return first.next_below(node.repetition);
  }
  char mark = '[';
  do {
    *json_ += std::exchange(mark, ',');
    write(element, repetition);
    repetition = node.repetition;
  } while (!first.at_end() && first.repetition() == repetition);
  *json_ += ']';
}

void RowAssembler::pass(const SchemaNode& node, unsigned repetition, unsigned definition) {
  for (std::size_t leaf = node.first_leaf; leaf < node.end_leaf; ++leaf) {
    ColumnReader& column = use(leaf);
    if (column.at_end() || column.repetition() != repetition || column.definition() != definition) {
      damaged("its levels contradict its neighbours'");
    }
    column.next();
  }
}

}  // namespace maestro::parquet
