"""A GGUF file with the weights of another one dequantised: python gguf_of.py SOURCE.gguf OUT.gguf f32|bf16|f16. Needs gguf."""

import sys

import gguf
import numpy

source, out, name = sys.argv[1:]
reader = gguf.GGUFReader(source)
writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
kept = [f for f in reader.fields.values() if not f.name.startswith("GGUF.") and f.name not in ("general.architecture", "general.file_type")]
for field in kept:
    kind = field.types[0]
    writer.add_key_value(field.name, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
kind = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16, "f16": gguf.GGMLQuantizationType.F16}[name]
files = {"f32": gguf.LlamaFileType.ALL_F32, "bf16": gguf.LlamaFileType.MOSTLY_BF16, "f16": gguf.LlamaFileType.MOSTLY_F16}
writer.add_file_type(files[name])
for tensor in reader.tensors:
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
    if values.ndim < 2 or name == "f32":
        writer.add_tensor(tensor.name, values)
    else:
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
