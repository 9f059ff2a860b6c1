// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_objects.hpp"

#include "runtime/chat/template_text.hpp"

namespace maestro {

using Value = TemplateValue;

Value object_attribute(TemplateObject& object, const std::string& name) {
  if (object.kind == TemplateObject::Kind::space) {
    const Value* found = object.attributes.find(std::string_view(name));
    return found == nullptr ? Value::undefined() : *found;
  }
  const std::size_t size = object.items.size();
  if (object.kind == TemplateObject::Kind::cycler) {
    if (name == "current") return object.items[object.at];
    return name == "next" || name == "reset" ? Value::method(&object, name) : Value::undefined();
  }
  if (object.kind == TemplateObject::Kind::macro && name == "name") return object.statement->names[0];
  if (object.kind != TemplateObject::Kind::loop) return Value::undefined();
  if (name == "index") return object.at + 1;
  if (name == "index0") return object.at;
  if (name == "revindex") return size - object.at;
  if (name == "revindex0") return size - object.at - 1;
  if (name == "first") return object.at == 0;
  if (name == "last") return object.at + 1 == size;
  if (name == "length") return size;
  if (name == "depth") return object.depth + 1;
  if (name == "depth0") return object.depth;
  if (name == "previtem") return object.at > 0 ? object.items[object.at - 1] : Value::undefined();
  if (name == "nextitem") return object.at + 1 < size ? object.items[object.at + 1] : Value::undefined();
  return name == "cycle" || name == "changed" ? Value::method(&object, name) : Value::undefined();
}

std::string object_repr(const TemplateObject& object, const TemplatePlace& place) {
  if (object.kind == TemplateObject::Kind::macro) return "<Macro " + text_repr(object.statement->names[0]) + ">";
  if (object.kind != TemplateObject::Kind::loop) refuse_template(place, "the output of an object");
  return "<LoopContext " + std::to_string(object.at + 1) + "/" + std::to_string(object.items.size()) + ">";
}

}  // namespace maestro
