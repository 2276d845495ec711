// The data of a job on the wire.
#include <utility>

#include "proto/convert.h"

namespace meshwright::proto {
namespace {

v1::DataSlice EncodeSlice(const ir::DataSlice& slice) {
  v1::DataSlice wire;
  wire.set_file(slice.file);
  wire.set_begin_bytes(slice.begin_bytes);
  wire.set_items(slice.items);
  return wire;
}

ir::DataSlice DecodeSlice(const v1::DataSlice& wire) {
  return {wire.file(), wire.begin_bytes(), wire.items()};
}

v1::DataField EncodeField(const ir::DataField& field) {
  v1::DataField wire;
  wire.set_name(field.name);
  wire.set_element(std::string(ir::ElementName(field.element)));
  wire.mutable_item()->Assign(field.item.begin(), field.item.end());
  for (const ir::DataSlice& slice : field.slices) *wire.add_slices() = EncodeSlice(slice);
  for (const ir::DataSlice& slice : field.validation) *wire.add_validation() = EncodeSlice(slice);
  return wire;
}

Result<ir::DataField> DecodeField(const v1::DataField& wire) {
  ir::DataField field;
  field.name = wire.name();
  MW_ASSIGN_OR_RETURN(field.element, ir::ParseElement(wire.element()));
  field.item.assign(wire.item().begin(), wire.item().end());
  for (const v1::DataSlice& slice : wire.slices()) field.slices.push_back(DecodeSlice(slice));
  for (const v1::DataSlice& slice : wire.validation()) {
    field.validation.push_back(DecodeSlice(slice));
  }
  return field;
}

v1::DataPart EncodePart(const ir::DataPart& part) {
  v1::DataPart wire;
  wire.set_name(part.name);
  wire.set_items(part.items);
  wire.set_weight(part.weight);
  return wire;
}

v1::DataStream EncodeStream(const ir::DataStream& stream) {
  v1::DataStream wire;
  wire.set_name(stream.name);
  wire.set_records(stream.kind == ir::DataKind::kRecords);
  for (const ir::FileRef& file : stream.files) *wire.add_files() = Encode(file);
  for (const ir::DataField& field : stream.fields) *wire.add_fields() = EncodeField(field);
  wire.set_validation_fraction(stream.validation_fraction);
  for (const ir::DataPart& part : stream.parts) *wire.add_parts() = EncodePart(part);
  for (const ir::DataPart& part : stream.validation_parts) {
    *wire.add_validation_parts() = EncodePart(part);
  }
  if (!stream.actor.empty()) {
    v1::ActorSource& actor = *wire.mutable_actor();
    actor.set_type(stream.actor.type);
    actor.set_args(stream.actor.args);
    actor.set_validation_rows(stream.actor.validation_rows);
    actor.set_deadline_ms(stream.actor.deadline_ms);
  }
  return wire;
}

std::vector<ir::DataPart> DecodeParts(
    const google::protobuf::RepeatedPtrField<v1::DataPart>& wire) {
  std::vector<ir::DataPart> parts;
  for (const v1::DataPart& from : wire) {
    parts.push_back({from.name(), from.items(), from.weight()});
  }
  return parts;
}

Result<ir::DataStream> DecodeStream(const v1::DataStream& wire) {
  ir::DataStream stream;
  stream.name = wire.name();
  stream.kind = wire.records() ? ir::DataKind::kRecords : ir::DataKind::kTokens;
  for (const v1::FileRef& from : wire.files()) {
    MW_ASSIGN_OR_RETURN(ir::FileRef file, Decode(from));
    stream.files.push_back(std::move(file));
  }
  for (const v1::DataField& from : wire.fields()) {
    MW_ASSIGN_OR_RETURN(ir::DataField field, DecodeField(from));
    stream.fields.push_back(std::move(field));
  }
  stream.validation_fraction = wire.validation_fraction();
  stream.parts = DecodeParts(wire.parts());
  stream.validation_parts = DecodeParts(wire.validation_parts());
  if (wire.has_actor()) {
    stream.actor = {wire.actor().type(), wire.actor().args(), wire.actor().validation_rows(),
                    wire.actor().deadline_ms()};
  }
  return stream;
}

}  // namespace

v1::FolderRef Encode(const ir::FolderRef& folder) {
  v1::FolderRef wire;
  wire.set_root(folder.root);
  wire.set_path(folder.path);
  return wire;
}

ir::FolderRef Decode(const v1::FolderRef& wire) { return {wire.root(), wire.path()}; }

v1::FileRef Encode(const ir::FileRef& file) {
  v1::FileRef wire;
  wire.set_sha256(file.blob.sha256);
  wire.set_size_bytes(file.blob.size_bytes);
  wire.set_name(file.blob.name);
  wire.set_root(file.root);
  wire.set_path(file.path);
  wire.set_sampled(file.sampled);
  return wire;
}

Result<ir::FileRef> Decode(const v1::FileRef& wire) {
  v1::BlobRef blob;
  blob.set_sha256(wire.sha256());
  blob.set_size_bytes(wire.size_bytes());
  blob.set_name(wire.name());
  ir::FileRef file;
  MW_ASSIGN_OR_RETURN(file.blob, Decode(blob));
  file.root = wire.root();
  file.path = wire.path();
  file.sampled = wire.sampled();
  return file;
}

v1::DataRoot Encode(const ir::DataRoot& root) {
  v1::DataRoot wire;
  wire.set_name(root.name);
  wire.set_path(root.path);
  return wire;
}

ir::DataRoot Decode(const v1::DataRoot& wire) { return {wire.name(), wire.path()}; }

v1::DataSpec Encode(const ir::DataSpec& data) {
  v1::DataSpec wire;
  *wire.mutable_blob() = Encode(data.blob);
  wire.set_format(data.format);
  wire.set_validation_fraction(data.validation_fraction);
  for (const ir::DataStream& stream : data.streams) *wire.add_streams() = EncodeStream(stream);
  return wire;
}

Result<ir::DataSpec> Decode(const v1::DataSpec& wire) {
  ir::DataSpec data;
  MW_ASSIGN_OR_RETURN(data.blob, Decode(wire.blob()));
  data.format = wire.format();
  data.validation_fraction = wire.validation_fraction();
  for (const v1::DataStream& from : wire.streams()) {
    MW_ASSIGN_OR_RETURN(ir::DataStream stream, DecodeStream(from));
    data.streams.push_back(std::move(stream));
  }
  return data;
}

}  // namespace meshwright::proto
