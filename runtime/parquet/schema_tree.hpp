// SPDX-License-Identifier: Apache-2.0
// The columns of a file as a tree of lists, structs and values (README.md, "Nested Encoding"; LogicalTypes.md, "Nested
// Types" with its rules for lists of older writers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/parquet/column_reader.hpp"
#include "runtime/parquet/metadata.hpp"
#include "runtime/parquet/value_text.hpp"

namespace maestro::parquet {

enum class NodeKind : std::uint8_t { value, structure, list };

/// A value, a struct, or a list with its element as the only child. A map is a list of structs of key and value.
struct SchemaNode {
  NodeKind kind = NodeKind::value;
  std::string key;          ///< name in JSON, with a colon: "\"text\":"
  bool optional = false;    ///< may be null, if the definition level is below `definition`
  unsigned definition = 0;  ///< least level of an entry that is not null
  unsigned repetition = 0;  ///< list: level of an entry that continues the list; its elements have `definition` + 1
  std::size_t first_leaf = 0;
  std::size_t end_leaf = 0;
  std::vector<SchemaNode> children;
};

/// A column of values.
struct Leaf {
  std::string path;  ///< printable: "messages.list.element.role"
  ColumnType type;
  ValueForm form;
  bool blob = false;  ///< bytes that rows keep
};

struct SchemaTree {
  SchemaNode root;  ///< a structure: the columns
  std::vector<Leaf> leaves;
};

/// Makes the tree of a footer's schema. Throws JobError: corrupt for a schema that is not a tree, invalid_argument for
/// one with two columns of a name, too many levels, or a type that does not have the annotated meaning.
/// With `images`, bytes of the columns image and images, and of others with the name bytes, are blobs.
[[nodiscard]] SchemaTree make_schema_tree(const std::vector<SchemaElement>& schema, bool images = false);

}  // namespace maestro::parquet
