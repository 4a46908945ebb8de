// Uses CPU in a native library of the runtime, libSystem.IO.Compression.Native.so: compresses the
// same text repeatedly.
//
//   compress [--seconds S]      default: 5 s
//
// Prints a JSON line "ready" with the pid at the start, and "done" with the number of compressions
// at the end.
//
// Uses only C# 7 and mscorlib, as mixed.cs does. It therefore finds BrotliStream by name.
using System;
using System.Globalization;
using System.IO;
using System.Runtime.InteropServices;
using System.Text;

static class Program
{
    static int Main(string[] args)
    {
        var seconds = 5.0;
        if (args.Length != 0 &&
            (args.Length != 2 || args[0] != "--seconds" ||
             !double.TryParse(args[1], NumberStyles.Float, CultureInfo.InvariantCulture, out seconds) || !(seconds > 0)))
        {
            Console.Error.WriteLine("usage: compress [--seconds S]");
            return 2;
        }

        var type = Type.GetType("System.IO.Compression.BrotliStream, System.IO.Compression.Brotli", true);
        var text = new StringBuilder();
        for (var i = 0; i < 20000; i++)
        {
            text.Append(i * 7919 % 1009).Append(" words and ");
        }

        var bytes = Encoding.ASCII.GetBytes(text.ToString());
        Console.WriteLine("{\"event\":\"ready\",\"pid\":" + GetPid() + "}");
        var count = 0L;
        var end = DateTime.UtcNow.AddSeconds(seconds);
        for (; DateTime.UtcNow < end; count++)
        {
            // 0: CompressionLevel.Optimal.
            var level = Enum.ToObject(Type.GetType("System.IO.Compression.CompressionLevel, System.IO.Compression", true), 0);
            using (var stream = (Stream)Activator.CreateInstance(type, new MemoryStream(), level))
            {
                stream.Write(bytes, 0, bytes.Length);
            }
        }

        Console.WriteLine("{\"event\":\"done\",\"pid\":" + GetPid() + ",\"compressed\":" + count + "}");
        return 0;
    }

    [DllImport("libc", EntryPoint = "getpid")]
    static extern int GetPid();
}
