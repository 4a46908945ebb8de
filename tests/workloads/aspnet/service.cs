// A service of ASP.NET Core whose requests take known times. Ends when its standard input does.
//   /wait/MS  waits without a thread     /call/MS  requests /wait/MS of itself     /fail/N  throws
//   /burn/MS  keeps a CPU busy, on several threads in turn                         /hang    never ends
//   /sleep/MS blocks its thread
using System;
using System.Diagnostics;
using System.Net.Http;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Logging;

static class Program
{
    const int Turns = 4;
    static readonly HttpClient Client = new HttpClient();
    static string url;

    static void Burn(int ms)
    {
        var clock = Stopwatch.StartNew();
        while (clock.ElapsedMilliseconds < ms) { Thread.SpinWait(100); }
    }

    static async Task Handle(HttpContext context)
    {
        var words = context.Request.Path.Value.Split('/');
        var number = words.Length > 2 ? Convert.ToInt32(words[2]) : 0;
        switch (words[1])
        {
            case "wait":
                await Task.Delay(number);
                break;
            case "burn":
                for (var turn = 0; turn < Turns; turn++)
                {
                    Burn(number / Turns);
                    await Task.Yield();
                }
                break;
            case "call":
                await Client.GetStringAsync(string.Format("{0}/wait/{1}?token=secret", url, number));
                break;
            case "sleep":
                Thread.Sleep(number);
                break;
            case "fail":
                throw new InvalidOperationException("a test");
            case "hang":
                await Task.Delay(Timeout.Infinite);
                break;
        }
        await context.Response.WriteAsync("ok");
    }

    static void Main()
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.UseUrls("http://127.0.0.1:0");
        var app = builder.Build();
        app.Run(new RequestDelegate(Handle));
        app.StartAsync().Wait();
        foreach (var each in app.Urls) { url = each; }
        Console.WriteLine("{\"event\":\"ready\",\"pid\":" + Process.GetCurrentProcess().Id + ",\"url\":\"" + url + "\"}");
        Console.In.ReadToEnd();
        Console.WriteLine("{\"event\":\"done\"}");
        Environment.Exit(0);
    }
}
